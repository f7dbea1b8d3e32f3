#include "tools/output/append_whole.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> All(const std::string& path) {
  ReverseLines lines = *ReverseLines::Open(path);
  std::vector<std::string> all;
  std::string line;
  while (*lines.Next(line)) all.push_back(line);
  EXPECT_EQ(lines.begin(), 0);
  return all;
}

TEST(ReverseLines, GivesTheLastFirst) {
  const TemporaryDirectory directory;
  const std::string path = directory / "lines";
  SetContents(path, "one\n\nthree\n");
  EXPECT_THAT(All(path), ElementsAre("three", "", "one"));
  SetContents(path, "one\ntwo");
  EXPECT_THAT(All(path), ElementsAre("two", "one"));
  SetContents(path, "\n");
  EXPECT_THAT(All(path), ElementsAre(""));
  SetContents(path, "");
  EXPECT_THAT(All(path), IsEmpty());
}

TEST(ReverseLines, SaysWhereALineBeginsAndWhetherItEnds) {
  const TemporaryDirectory directory;
  SetContents(directory / "lines", "one\ntwo\nthr");
  ReverseLines lines = *ReverseLines::Open(directory / "lines");
  EXPECT_EQ(lines.begin(), 11);
  std::string line;
  ASSERT_TRUE(*lines.Next(line));
  EXPECT_EQ(lines.begin(), 8);
  EXPECT_FALSE(lines.complete());
  ASSERT_TRUE(*lines.Next(line));
  EXPECT_EQ(lines.begin(), 4);
  EXPECT_TRUE(lines.complete());
}

TEST(ReverseLines, RefusesWhatHasNoLines) {
  const TemporaryDirectory directory;
  SetContents(directory / "zeros", "");
  std::filesystem::resize_file(directory / "zeros", 200 << 20);
  std::string line;
  EXPECT_EQ(ReverseLines::Open(directory / "zeros")->Next(line).status().code(), absl::StatusCode::kInvalidArgument);
}

// Lines from far shorter to longer than several blocks, their ends on and beside the blocks' borders.
TEST(ReverseLines, LinesCrossBlocks) {
  const TemporaryDirectory directory;
  std::string text;
  std::vector<std::string> expected;
  for (const int64_t length : {1, 65535, 65536, 65537, 400000, 0, 131071, 3, 65534, 65535}) {
    expected.insert(expected.begin(), absl::StrCat(length, std::string(length, 'x')));
    text += expected.front() + "\n";
  }
  SetContents(directory / "lines", text);
  EXPECT_EQ(All(directory / "lines"), expected);
}

TEST(ReverseLines, WhatComesBeforeIsNotRead) {
  const TemporaryDirectory directory;
  SetContents(directory / "lines", std::string(10'000'000, '\n') + "the end\n");
  ReverseLines lines = *ReverseLines::Open(directory / "lines");
  std::string line;
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(*lines.Next(line));
  EXPECT_LE(lines.bytes_read(), ReverseLines::kBlockBytes);
}

TEST(ReverseLines, NeedsAFile) {
  const TemporaryDirectory directory;
  EXPECT_EQ(ReverseLines::Open(directory / "nothing").status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(ReverseLines::Open(directory.path()).ok());
}

}  // namespace
}  // namespace hadal
