// Expected values: sacreBLEU 2.6.0, `CHRF(word_order=…).corpus_score(...)`, every double printed by repr().
#include "runtime/data/chrf.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/runtime/data/scored_sentences.h"

namespace hadal {
namespace {

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
