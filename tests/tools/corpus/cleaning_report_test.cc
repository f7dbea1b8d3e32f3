// What the cleaning report counts, and that filters skip just that, of training text alone.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/tools/corpus/prepare_fixture.h"
#include "tools/corpus/cleaning_report.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Tokens are words.
class CleaningReportTest : public PrepareTest {
 protected:
  void SetUp() override {
    PrepareTest::SetUp();
    Write("words", "a 9\nb 9\nc 9\nd 9\ne 9\nf 9\ng 9\nx 9\ny 9\nz 9\n");
    options_.source_vocabulary = options_.target_vocabulary = Path("words");
    options_.overwrite = true;
  }
  void WritePairs(const std::string& name, const std::vector<std::string>& pairs) const {
    Write(name, "");
    for (const std::string& pair : pairs) Write(name, absl::StrCat(Read(name), pair, "\n"));
  }
  TextPair Columns(const std::string& file, const Direction& direction, const std::string& domain = "") const {
    return {.source = Path(file), .target = Path(file), .one_file = true, .direction = direction, .domain = domain};
  }
  nlohmann::json Report() const { return nlohmann::json::parse(Read("out/cleaning.json")); }
  std::vector<std::string> Pairs(const std::string& split) const {
    const Corpus corpus = OpenCorpus(split);
    std::vector<std::string> pairs;
    for (int64_t i = 0; i < corpus.size(); ++i) {
      pairs.push_back(absl::StrCat(SourceText(corpus, i), "/", TargetText(corpus, i)));
    }
    return pairs;
  }
};

TEST_F(CleaningReportTest, FindingsAreCountedAndSkippedOnlyByFilters) {
  WritePairs("train", {"a b\tx y", "c d\tz z", "c d\tz z", "c d\tx y", "e\te", "\tx", "f\tx y z", "g\tx y z z",
                       "b\xFF\tx", "a a a a a a\ty"});
  WritePairs("valid", {"a b\tx y", "a b\tx y", "g\tx y z z y"});
  options_.train = {Columns("train", {"en", "de"})};
  options_.valid = {Columns("valid", {"en", "de"})};
  options_.max_tokens = 5;
  options_.on_invalid = BadLine::kSkip;
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(Pairs("train"), ElementsAre("a b/x y", "c d/z z", "c d/z z", "c d/x y", "e/e", "f/x y z", "g/x y z z"));
  EXPECT_EQ(Report(), nlohmann::json::parse(R"({"max_tokens": 5, "length_ratio": 3, "splits": {
      "train": [{"text": "en-de", "pairs": 10, "invalid": 1, "empty": 1, "held_out": 1, "duplicates": 1,
                 "repeated_sources": 2, "repeated_targets": 2, "equal_sides": 1, "too_long": 1, "high_ratio": 1,
                 "kept": 7}],
      "valid": [{"text": "en-de", "pairs": 3, "invalid": 0, "empty": 0, "duplicates": 1, "repeated_sources": 1,
                 "repeated_targets": 1, "equal_sides": 0, "too_long": 0, "high_ratio": 1, "kept": 3}]}})"));
  EXPECT_THAT(
      out_.str(),
      HasSubstr(
          "       pairs  invalid  empty  valid/test  duplicates  same source  same target  source=target  too long  "
          "ratio>3  kept\n"
          "train     10        1      1           1           1            2            2              1         1  "
          "      1     7\n"
          "valid      3        0      0                       1            1            1              0         0  "
          "      1     3\n"));

  options_.drop_duplicates = options_.drop_test_overlap = true;
  options_.max_length_ratio = 2.5;
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(Pairs("train"), ElementsAre("c d/z z", "c d/x y", "e/e"));
  EXPECT_THAT(out_.str(), ::testing::Not(HasSubstr("are also validation"))) << "they are left out";
  EXPECT_THAT(Pairs("valid"), ElementsAre("a b/x y", "a b/x y", "g/x y z z y"));
  const nlohmann::json train = Report()["splits"]["train"][0];
  EXPECT_EQ(train["dropped"], nlohmann::json::parse(R"({"held_out": 1, "duplicates": 1, "high_ratio": 2})"));
  EXPECT_EQ(train["kept"], 3);
  EXPECT_THAT(out_.str(),
              HasSubstr("skipped 7 of 10 (70%): 1 with an empty side, 1 longer than 5 tokens, 1 not UTF-8 "
                        "or broken JSON, 1 in validation or test text, 1 duplicates, 2 with a length ratio over 2.5"));
}

// A direction's texts are compared with each other, and with no other direction's.
TEST_F(CleaningReportTest, OneFileAndAListKeepTheSamePairsOnAnyThreads) {
  const std::vector<std::string> one = {"a\tx", "b\ty", "a\tx"}, two = {"b\ty", "c\tz", "d\tx"};
  WritePairs("one", one);
  WritePairs("two", two);
  WritePairs("both", {"a\tx", "b\ty", "a\tx", "b\ty", "c\tz", "d\tx"});
  WritePairs("test", {"d\tx"});
  options_.test = {Columns("test", {"en", "de"}), Columns("one", {"de", "en"})};
  options_.drop_duplicates = options_.drop_test_overlap = true;
  options_.train = {Columns("both", {"en", "de"})};
  options_.threads = 1;
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(Pairs("train"), ElementsAre("a/x", "b/y", "c/z"));
  const std::string report = Read("out/cleaning.json");
  options_.threads = 3;
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(Read("out/cleaning.json"), report);
  options_.train = {Columns("one", {"en", "de"}, "1"), Columns("one", {"en", "fr"}), Columns("two", {"en", "de"}, "2")};
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(Pairs("train"), ElementsAre("a/x", "b/y", "a/x", "b/y", "c/z"));
  const nlohmann::json texts = Report()["splits"]["train"];
  EXPECT_EQ(texts[0]["duplicates"], 1);
  EXPECT_EQ(texts[1]["repeated_sources"], 1);
  EXPECT_EQ(texts[2]["dropped"], nlohmann::json::parse(R"({"held_out": 1, "duplicates": 1})"));
  EXPECT_THAT(out_.str(), HasSubstr("train total"));

  options_.train[2] = Columns("one", {"en", "de"}, "2");
  const absl::Status status = Run();
  EXPECT_THAT(std::string(status.message()), HasSubstr("train: en-de 2 (" + Path("one") +
                                                       ") has no usable lines, skipped 3 of 3 (100%): 3 duplicates;"));
}

// The vocabulary does not see what filters drop.
TEST_F(CleaningReportTest, VocabulariesAreTrainedOnWhatIsLeft) {
  options_.source_vocabulary = options_.target_vocabulary = "";
  options_.training.size = 40;
  options_.test = {{Path("test.en"), Path("test.de")}};
  Write("test.en", "ω ω ω\n");
  Write("test.de", "ω\n");
  Write("train.en", absl::StrCat(kEnglish, "ω ω ω\n"));
  Write("train.de", absl::StrCat(kGerman, "ω\n"));
  options_.drop_test_overlap = true;
  options_.training.character_coverage = 1;
  ASSERT_TRUE(Run().ok()) << Run();
  EXPECT_EQ(OpenCorpus("train").size(), 3);
  EXPECT_GT(OpenCorpus("test").manifest().statistics.source_unknown, 0);
}

TEST_F(CleaningReportTest, PlainTextHasNoCountsOfTwoSides) {
  options_.monolingual = true;
  WritePairs("train", {"a", "b", "a"});
  options_.train = {{"", Path("train")}};
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(Report(), nlohmann::json::parse(R"({"max_tokens": 256, "splits": {
      "train": [{"text": "train", "pairs": 3, "invalid": 0, "empty": 0, "held_out": 0, "duplicates": 1, "too_long": 0,
                 "kept": 3}]}})"));
}

TEST_F(CleaningReportTest, FiltersThatCannotApplyAreRefused) {
  options_.drop_test_overlap = true;
  ExpectError({"--drop-test-overlap", "give --valid or --test"});
  options_.drop_test_overlap = false;
  options_.max_length_ratio = 2;
  options_.monolingual = true;
  ExpectError({"omit --max-length-ratio"});
  options_.max_length_ratio.reset();
  options_.features = options_.drop_duplicates = true;
  ExpectError({"omit --drop-duplicates"});
}

// Hundreds of directions take one row; a name cannot control the terminal.
TEST_F(CleaningReportTest, TheTableStaysShort) {
  SplitFindings split = {.split = "train", .training = true};
  for (int i = 0; i < 20; ++i) split.texts.push_back({.name = absl::StrCat("\x1b", i), .lines = 1000});
  EXPECT_THAT(CleaningTable({split}, {}), HasSubstr("\ntrain \\x1b19   1,000   1,000\ntrain total   20,000  20,000\n"));
  split.texts.push_back({.name = "more", .lines = 1});
  EXPECT_EQ(CleaningTable({split}, {}), "              pairs    kept\ntrain total  20,001  20,001\n");
}

}  // namespace

// What `hadal prepare` says of the lines it leaves out.

namespace {

using ::testing::HasSubstr;

std::string Refusal(const SkippedLines& skipped, int64_t lines, const PrepareOptions& options = {}) {
  return std::string(CheckSkipped("train", "text.en", lines, skipped, options).message());
}

TEST(SkippedLines, CountsShareAndReasonsAreSaid) {
  EXPECT_EQ(DescribeSkipped({}, 5, {}), "nothing skipped");
  EXPECT_EQ(
      DescribeSkipped({.invalid = 1, .empty = 2, .too_long = 1000}, 40000, {}),
      "skipped 1,003 of 40,000 (2.51%): 2 with an empty side, 1,000 longer than 256 tokens, 1 not UTF-8 or broken "
      "JSON");
  EXPECT_EQ(DescribeSkipped({.held_out = 1, .duplicates = 2, .high_ratio = 3}, 12, {.max_length_ratio = 1.5}),
            "skipped 6 of 12 (50%): 1 in validation or test text, 2 duplicates, 3 with a length ratio over 1.5");
  EXPECT_EQ(DescribeSkipped({.empty = 2}, 4, {.monolingual = true}), "skipped 2 of 4 (50%): 2 empty");
}

TEST(SkippedLines, MostIsMoreThanHalf) {
  EXPECT_EQ(MostlySkipped("train", "text.en", 4, {.empty = 2}, {}), "");
  EXPECT_THAT(MostlySkipped("train", "text.en", 4, {.empty = 3}, {}),
              HasSubstr("most of the train text (text.en) is unusable: skipped 3 of 4 (75%)"));
}

TEST(SkippedLines, MoreThanAllowedIsAnErrorAndSoIsAll) {
  EXPECT_EQ(Refusal({.empty = 90}, 100), "");
  EXPECT_THAT(Refusal({.empty = 91}, 100),
              HasSubstr("than the 90% that --max-skipped allows: skipped 91 of 100 (91%)"));
  EXPECT_EQ(Refusal({.empty = 99}, 100, {.most_skipped = 1}), "");
  EXPECT_THAT(Refusal({.empty = 100}, 100, {.most_skipped = 1}),
              HasSubstr("no line is left of the train text (text.en)"));
  EXPECT_EQ(Refusal({}, 0), "the train text (text.en) is empty");
  EXPECT_EQ(Refusal({}, 1, {.most_skipped = 0}), "");
  EXPECT_THAT(Refusal({.invalid = 1}, 100, {.most_skipped = 0}), HasSubstr("0% that --max-skipped allows"));
}

TEST(SkippedLines, WhatToTryFollowsFromTheMostFrequentReason) {
  EXPECT_THAT(Refusal({.invalid = 3, .empty = 3, .too_long = 94}, 101), HasSubstr("raise --max-tokens 256"));
  EXPECT_THAT(Refusal({.invalid = 3, .empty = 94, .too_long = 3}, 101), HasSubstr("translations of each other"));
  EXPECT_THAT(Refusal({.empty = 94}, 101, {.monolingual = true}), HasSubstr("the right file"));
  EXPECT_THAT(Refusal({.invalid = 94, .empty = 3, .too_long = 3}, 101), HasSubstr("iconv"));
  EXPECT_THAT(Refusal({.empty = 40, .held_out = 20, .duplicates = 36}, 101), HasSubstr("leave out the filter"));
}

}  // namespace

}  // namespace hadal
