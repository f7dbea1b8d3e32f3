// What `hadal prepare` says of the lines it leaves out.
#include "tools/corpus/cleaning_report.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;

std::string Refusal(const SkippedLines& skipped, int64_t lines, const PrepareOptions& options = {}) {
  return std::string(CheckSkipped("train", "text.en", lines, skipped, options).message());
}

TEST(SkippedLines, CountsShareAndReasonsAreSaid) {
  EXPECT_EQ(DescribeSkipped({}, 5, {}), "nothing skipped");
  EXPECT_EQ(DescribeSkipped({.invalid = 1, .empty = 2, .too_long = 1000}, 40000, {}),
            "skipped 1,003 of 40,000 (2.51%): 2 with an empty side, 1,000 longer than 256 tokens, 1 not UTF-8");
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
