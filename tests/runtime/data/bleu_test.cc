// Expected values: sacreBLEU 2.6.0, `BLEU().corpus_score(...)`, every double printed by repr().
#include "runtime/data/bleu.h"

#include <array>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/data/scored_sentences.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;

BleuScore Score(const Lines& hypotheses, const std::vector<Lines>& references) {
  BleuCounts counts;
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    Lines of_segment;
    for (const Lines& lines : references) of_segment.push_back(lines[i]);
    counts += CountBleuMatches(hypotheses[i], of_segment);
  }
  return BleuFromCounts(counts);
}

// Equal to the last bit but for the rounding of exp and log, which differs between C libraries by at most a unit or
// two.
void ExpectScore(const BleuScore& actual, double score, std::array<double, 4> precisions, double brevity_penalty) {
  EXPECT_DOUBLE_EQ(actual.score, score);
  for (int n = 0; n < 4; ++n) EXPECT_DOUBLE_EQ(actual.precisions[n], precisions[n]) << "order " << n + 1;
  EXPECT_DOUBLE_EQ(actual.brevity_penalty, brevity_penalty);
}

TEST(Bleu, OneReference) {
  const BleuScore score = Score(kHypotheses, {kReferences});
  ExpectScore(score, 62.07527519373162, {78.94736842105263, 70.58823529411765, 63.333333333333336, 57.69230769230769},
              0.9240885594051769);
  EXPECT_THAT(score.counts.matches, ElementsAre(30, 24, 19, 15));
  EXPECT_THAT(score.counts.totals, ElementsAre(38, 34, 30, 26));
  EXPECT_EQ(BleuDetails(score), "78.9/70.6/63.3/57.7 (BP = 0.924 ratio = 0.927 hyp_len = 38 ref_len = 41)");
}

TEST(Bleu, TwoReferences) {
  const BleuScore score = Score(kHypotheses, {kReferences, kMoreReferences});
  ExpectScore(score, 70.89775438991744, {89.47368421052632, 76.47058823529412, 66.66666666666667, 61.53846153846154},
              0.9740274534203012);
  EXPECT_EQ(score.counts.reference_tokens, 39);
}

TEST(Bleu, SmoothsOrdersWithoutMatchExponentially) {
  ExpectScore(Score({"a b c d e f"}, {{"a x b y c z"}}), 10.682175159905853, {50.0, 10.0, 6.25, 4.166666666666667},
              1.0);
  ExpectScore(Score({"a b c d e"}, {{"a b x d y e z w"}}), 13.943458243384402, {80.0, 25.0, 16.666666666666668, 12.5},
              0.5488116360940264);
}

TEST(Bleu, ShortOrMatchlessCorporaScoreZero) {
  ExpectScore(Score({"a b"}, {{"a b"}}), 0.0, {100.0, 100.0, 0.0, 0.0}, 1.0);
  ExpectScore(Score({"a b c d e"}, {{"v w x y z q"}}), 0.0, {0, 0, 0, 0}, 0.8187307530779819);
  ExpectScore(Score({""}, {{"v w x"}}), 0.0, {0, 0, 0, 0}, 0.0);
  ExpectScore(Score({""}, {{""}}), 0.0, {0, 0, 0, 0}, 1.0);
}

TEST(Bleu, ClipsByTheLargestCountInOneReference) {
  const BleuScore score =
      Score({"the the the the the the the"}, {{"the cat is on the mat"}, {"there is a cat on the mat"}});
  ExpectScore(score, 7.809849842300637, {28.571428571428573, 8.333333333333334, 5.0, 3.125}, 1.0);
}

TEST(Bleu, CountsAddUpOverSegmentsInAnyOrder) {
  BleuCounts counts;
  for (size_t i = kHypotheses.size(); i-- > 0;) counts += CountBleuMatches(kHypotheses[i], {kReferences[i]});
  EXPECT_EQ(BleuFromCounts(counts).score, Score(kHypotheses, {kReferences}).score);
}

TEST(Bleu, SignatureNamesTheDefinition) {
  EXPECT_EQ(BleuSignature(2, BleuTokenizer::kZh), "nrefs:2|case:mixed|eff:no|tok:zh|smooth:exp|version:2.6.0+hadal");
}

TEST(BleuTest, OfTwoReferencesEquallyCloseTheShorterCounts) {
  const std::string shorter = "a b c", longer = "a b c d e";
  EXPECT_EQ(CountBleuMatches("a b c d", {shorter, longer}).reference_tokens, 3);
  EXPECT_EQ(CountBleuMatches("a b c d", {longer, shorter}).reference_tokens, 3);
  EXPECT_EQ(CountBleuMatches("a b c d", {"a", longer}).reference_tokens, 5);
  EXPECT_EQ(CountBleuMatches("a b c d", {longer, "a", shorter}).reference_tokens, 3);
}

}  // namespace
}  // namespace hadal
