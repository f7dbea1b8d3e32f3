// Five translations and two references of each: the tests of BLEU and chrF have sacreBLEU's scores of them.
#pragma once

#include <string>
#include <vector>

namespace hadal {

using Lines = std::vector<std::string>;

inline const Lines kHypotheses = {"Das Haus, das er 1.000,50 Euro kostete, ist alt.", "Sie sagte: „Ich komme morgen“ …",
                                  "", "Der Hund &quot;bellt&quot; laut &amp; lange - 3-4 Stunden!",
                                  "Kein einziges Wort stimmt hier"};
inline const Lines kReferences = {"Das Haus, das 1.000,50 Euro gekostet hat, ist alt.",
                                  "Sie sagte: „Ich komme heute“ …", "Nichts.",
                                  "Der Hund \"bellt\" laut & lange - 3-4 Stunden!", "Alles ist ganz anders gekommen."};
inline const Lines kMoreReferences = {"Das Haus, das er für 1.000,50 Euro kaufte, ist sehr alt.",
                                      "Sie sagte: „Morgen komme ich.“", "", "Der Hund bellt laut und lange.",
                                      "Hier stimmt kein einziges Wort."};

}  // namespace hadal
