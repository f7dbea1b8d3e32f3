// Expected values: sacreBLEU 2.6.0, `CHRF(word_order=…).corpus_score(...)`, every double printed by repr().
#include "runtime/data/chrf.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace hadal {
namespace {

using Lines = std::vector<std::string>;

const Lines kHypotheses = {"Das Haus, das er 1.000,50 Euro kostete, ist alt.", "Sie sagte: „Ich komme morgen“ …", "",
                           "Der Hund &quot;bellt&quot; laut &amp; lange - 3-4 Stunden!",
                           "Kein einziges Wort stimmt hier"};
const Lines kReferences = {"Das Haus, das 1.000,50 Euro gekostet hat, ist alt.", "Sie sagte: „Ich komme heute“ …",
                           "Nichts.", "Der Hund \"bellt\" laut & lange - 3-4 Stunden!",
                           "Alles ist ganz anders gekommen."};
const Lines kMoreReferences = {"Das Haus, das er für 1.000,50 Euro kaufte, ist sehr alt.",
                               "Sie sagte: „Morgen komme ich.“", "", "Der Hund bellt laut und lange.",
                               "Hier stimmt kein einziges Wort."};

double Score(const Lines& hypotheses, const std::vector<Lines>& references, int word_order = 0) {
  ChrfCounts counts;
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    Lines of_segment;
    for (const Lines& lines : references) of_segment.push_back(lines[i]);
    counts += CountChrfMatches(hypotheses[i], of_segment, word_order);
  }
  return ChrfFromCounts(counts);
}

TEST(Chrf, OneReference) {
  EXPECT_EQ(Score(kHypotheses, {kReferences}, 0), 55.497183919164804);
  EXPECT_EQ(Score(kHypotheses, {kReferences}, 1), 56.70258419322565);
  EXPECT_EQ(Score(kHypotheses, {kReferences}, 2), 55.716427251864374);
}

TEST(Chrf, TheBestReferenceOfEachSegmentCounts) {
  EXPECT_EQ(Score(kHypotheses, {kReferences, kMoreReferences}, 0), 66.13178713709166);
  EXPECT_EQ(Score(kHypotheses, {kReferences, kMoreReferences}, 2), 65.07334482334724);
}

TEST(Chrf, OrdersThatOneSideLacksDoNotCount) {
  EXPECT_EQ(Score({"abc"}, {{"abd"}}), 38.888888888888886);
  EXPECT_EQ(Score({"abc"}, {{"abd"}}, 2), 29.166666666666664);
  EXPECT_EQ(Score({""}, {{"x"}}), 0);
  EXPECT_EQ(Score({"x"}, {{""}}), 0);
  EXPECT_EQ(Score({""}, {{""}}), 0);
}

TEST(Chrf, ASegmentWithoutAReferenceDoesNotCount) {
  EXPECT_EQ(Score({"ab c", "xyz"}, {{"ab d", ""}}, 2), 33.33333333333333);
}

TEST(Chrf, CharactersAreCodePointsWithoutSpaces) {
  EXPECT_EQ(Score({"a b"}, {{"ab"}}), 100);
  EXPECT_EQ(Score({"äöü"}, {{"aöu"}}), 11.11111111111111);
}

TEST(Chrf, WordsLoseOneMarkOfPunctuation) {
  EXPECT_EQ(Score({"a b"}, {{"ab"}}, 2), 66.66666666666666);
  EXPECT_EQ(Score({"(hi) !x y! ,"}, {{"( hi) ! x y ! ,"}}, 2), 93.85566356720201);
}

}  // namespace
}  // namespace hadal
