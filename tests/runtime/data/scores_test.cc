// Expected values: sacreBLEU 2.6.0, `BLEU().corpus_score(...)`, every double printed by repr().
#include "runtime/data/bleu.h"

#include <utility>

#include "gmock/gmock.h"
#include "runtime/data/chrf.h"
#include "runtime/data/word_errors.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using Lines = std::vector<std::string>;

// Five translations and two references of each.
const Lines kHypotheses = {"Das Haus, das er 1.000,50 Euro kostete, ist alt.", "Sie sagte: „Ich komme morgen“ …", "",
                           "Der Hund &quot;bellt&quot; laut &amp; lange - 3-4 Stunden!",
                           "Kein einziges Wort stimmt hier"};
const Lines kReferences = {"Das Haus, das 1.000,50 Euro gekostet hat, ist alt.", "Sie sagte: „Ich komme heute“ …",
                           "Nichts.", "Der Hund \"bellt\" laut & lange - 3-4 Stunden!",
                           "Alles ist ganz anders gekommen."};
const Lines kMoreReferences = {"Das Haus, das er für 1.000,50 Euro kaufte, ist sehr alt.",
                               "Sie sagte: „Morgen komme ich.“", "", "Der Hund bellt laut und lange.",
                               "Hier stimmt kein einziges Wort."};

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

// Expected values: sacreBLEU 2.6.0, `CHRF(word_order=…).corpus_score(...)`, every double printed by repr().
double ChrfScore(const Lines& hypotheses, const std::vector<Lines>& references, int word_order = 0) {
  ChrfCounts counts;
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    Lines of_segment;
    for (const Lines& lines : references) of_segment.push_back(lines[i]);
    counts += CountChrfMatches(hypotheses[i], of_segment, word_order);
  }
  return ChrfFromCounts(counts);
}

TEST(Chrf, OneReference) {
  EXPECT_EQ(ChrfScore(kHypotheses, {kReferences}, 0), 55.497183919164804);
  EXPECT_EQ(ChrfScore(kHypotheses, {kReferences}, 1), 56.70258419322565);
  EXPECT_EQ(ChrfScore(kHypotheses, {kReferences}, 2), 55.716427251864374);
}

TEST(Chrf, TheBestReferenceOfEachSegmentCounts) {
  EXPECT_EQ(ChrfScore(kHypotheses, {kReferences, kMoreReferences}, 0), 66.13178713709166);
  EXPECT_EQ(ChrfScore(kHypotheses, {kReferences, kMoreReferences}, 2), 65.07334482334724);
}

TEST(Chrf, OrdersThatOneSideLacksDoNotCount) {
  EXPECT_EQ(ChrfScore({"abc"}, {{"abd"}}), 38.888888888888886);
  EXPECT_EQ(ChrfScore({"abc"}, {{"abd"}}, 2), 29.166666666666664);
  EXPECT_EQ(ChrfScore({"abc"}, {{"a"}}), 71.42857142857143);
  EXPECT_EQ(ChrfScore({""}, {{"x"}}), 0);
  EXPECT_EQ(ChrfScore({"x"}, {{""}}), 0);
  EXPECT_EQ(ChrfScore({""}, {{""}}), 0);
}

TEST(Chrf, ASegmentWithoutAReferenceDoesNotCount) {
  EXPECT_EQ(ChrfScore({"ab c", "xyz"}, {{"ab d", ""}}, 2), 33.33333333333333);
}

TEST(Chrf, CharactersAreCodePointsWithoutSpaces) {
  EXPECT_EQ(ChrfScore({"a b"}, {{"ab"}}), 100);
  EXPECT_EQ(ChrfScore({"äöü"}, {{"aöu"}}), 11.11111111111111);
}

TEST(Chrf, WordsLoseOneMarkOfPunctuation) {
  EXPECT_EQ(ChrfScore({"a b"}, {{"ab"}}, 2), 66.66666666666666);
  EXPECT_EQ(ChrfScore({"(hi) !x y! ,"}, {{"( hi) ! x y ! ,"}}, 2), 93.85566356720201);
}

// Expected values: jiwer 4.0.0's process_words(reference, hypothesis).
void ExpectErrors(std::string_view hypothesis, std::string_view reference, int64_t errors, int64_t words) {
  const WordErrors found = CountWordErrors(hypothesis, reference);
  EXPECT_EQ(found.errors, errors) << hypothesis << " | " << reference;
  EXPECT_EQ(found.reference_words, words) << hypothesis << " | " << reference;
}

TEST(WordErrors, CountsSubstitutionsDeletionsAndInsertions) {
  ExpectErrors("a b c", "a x c d", 2, 4);
  ExpectErrors("b c d e", "a b c d", 2, 4);
  ExpectErrors("a, b", "a b", 1, 2);
}

TEST(WordErrors, EmptySidesCountTheOther) {
  ExpectErrors("", "a b", 2, 2);
  ExpectErrors("a b", "", 2, 0);
  ExpectErrors("", " \t", 0, 0);
}

TEST(WordErrors, ASingleTabOrNoBreakSpaceIsALetter) {
  ExpectErrors("a\tb c", "a b c", 2, 3);
  ExpectErrors("a\t b  c\u00a0d", " a b c d ", 2, 4);
  ExpectErrors("a\u00a0\u00a0b", "a b", 0, 2);
  ExpectErrors("\u3000a", "a", 0, 1);
}

TEST(WordErrors, OfCharactersCountsSpacesBetweenWords) {
  const auto errors = [](std::string_view hypothesis, std::string_view reference) {
    const WordErrors found = CountCharacterErrors(hypothesis, reference);
    return std::pair(found.errors, found.reference_words);
  };
  EXPECT_EQ(errors("a bc", "abcd"), std::pair(int64_t{2}, int64_t{4}));
  EXPECT_EQ(errors(" é\u3000", "\te"), std::pair(int64_t{1}, int64_t{1}));
  EXPECT_EQ(errors("", "中文"), std::pair(int64_t{2}, int64_t{2}));
}

TEST(WordErrors, TheRateIsErrorsPerWord) {
  WordErrors sum = CountWordErrors("a b c", "a x c d");
  sum += CountWordErrors("a", "a");
  EXPECT_EQ(sum.Rate(), 0.4);
  EXPECT_EQ(CountWordErrors("a b", "").Rate(), 2);
}

}  // namespace
}  // namespace hadal
