#include "runtime/data/unspaced_text.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/data/bleu.h"

namespace hadal {
namespace {

using Lines = std::vector<std::string>;

TEST(IsUnspaced, ScriptsWithoutSpacesBetweenWords) {
  EXPECT_TRUE(IsUnspaced(Lines{"我们昨天在公园里看到了一只黑色的猫。", "你好！"}));
  EXPECT_TRUE(IsUnspaced(Lines{"昨日、公園で黒い猫を見ました。", "カタカナだけのことばです"}));
  EXPECT_TRUE(IsUnspaced(Lines{"เมื่อวานเราเห็นแมวดำในสวนสาธารณะ"}));
  EXPECT_TRUE(IsUnspaced(Lines{"ພວກເຮົາເຫັນແມວດຳ", "ကျွန်တော်တို့ကြောင်နက်", "យើងបានឃើញឆ្មាខ្មៅ", "𠀀𠀁𠀂𠀃𠀄𠀅"}));
}

TEST(IsUnspaced, TextWithSpacesIsNot) {
  EXPECT_FALSE(IsUnspaced(Lines{"We saw a black cat in the park yesterday.", "Donaudampfschifffahrtsgesellschaft"}));
  EXPECT_FALSE(IsUnspaced(Lines{"어제 공원에서 검은 고양이를 보았습니다."})) << "Korean has spaces";
  EXPECT_FALSE(IsUnspaced(Lines{"我们 昨天 在 公园 里 看到 了 一 只 黑色 的 猫 。"})) << "cut into words";
  EXPECT_FALSE(IsUnspaced(Lines{"我\u3000们\u3000昨\u3000天"})) << "by spaces as wide as a character";
  EXPECT_FALSE(IsUnspaced(Lines{"The word 猫 means cat, which I learnt at school yesterday."}));
  EXPECT_FALSE(IsUnspaced(Lines{}));
  EXPECT_FALSE(IsUnspaced(Lines{"", "  "}));
}

TEST(IsUnspaced, WhatIsNotUtf8IsRead) {
  EXPECT_FALSE(IsUnspaced(Lines{"\xE6\x88", "\xF0", "\xFF\xFE"})) << "cut off, or no character";
}

// Why it is asked: one character differs of thirty-six, and nothing matches.
TEST(IsUnspaced, OneOtherCharacterTakesAWholeSentenceFromBleu) {
  const Lines references = {"我们昨天在公园里看到了一只黑色的猫。", "他每天早上都在这里喝一杯热咖啡。"};
  Lines hypotheses = references;
  hypotheses[0].replace(0, 3, "你");
  EXPECT_TRUE(IsUnspaced(references));
  BleuCounts counts;
  for (size_t i = 0; i < hypotheses.size(); ++i) counts += CountBleuMatches(hypotheses[i], {references[i]});
  EXPECT_EQ(BleuFromCounts(counts).score, 0);
}

}  // namespace
}  // namespace hadal
