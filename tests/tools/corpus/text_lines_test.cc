#include "tools/corpus/text_lines.h"

#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> LinesOf(const std::string& text) {
  std::istringstream in(text);
  TextLines lines(in, "text");
  std::vector<std::string> all;
  std::string line;
  while (true) {
    const absl::StatusOr<bool> more = lines.Next(line);
    EXPECT_TRUE(more.ok()) << more.status();
    if (!more.ok() || !*more) break;
    all.push_back(line);
  }
  EXPECT_EQ(lines.lines(), std::ssize(all));
  return all;
}

TEST(TextLines, TheLastLineNeedNotEnd) {
  EXPECT_THAT(LinesOf("a\nb\n"), ElementsAre("a", "b"));
  EXPECT_THAT(LinesOf("a\nb"), ElementsAre("a", "b"));
  EXPECT_THAT(LinesOf("\n\n"), ElementsAre("", ""));
  EXPECT_THAT(LinesOf(""), IsEmpty());
}

TEST(TextLines, OneCarriageReturnBeforeTheEndIsNoText) {
  EXPECT_THAT(LinesOf("a\r\nb\r\r\nc\rd\r"), ElementsAre("a", "b\r", "c\rd"));
}

// At the very beginning only; behind it the same bytes are a character.
TEST(TextLines, AByteOrderMarkIsNoText) {
  EXPECT_THAT(LinesOf("\xEF\xBB\xBF"
                      "a\n\xEF\xBB\xBF"
                      "b\n"),
              ElementsAre("a",
                          "\xEF\xBB\xBF"
                          "b"));
  EXPECT_THAT(LinesOf("\xEF\xBB\xBF\r\n"), ElementsAre(""));
}

// NEL, form feeds and Unicode's line separator are text: line n of a translation is that of line n.
TEST(TextLines, NothingElseEndsALine) {
  EXPECT_THAT(LinesOf("a\xC2\x85 b\x0C c\xE2\x80\xA8 d\n"), ElementsAre("a\xC2\x85 b\x0C c\xE2\x80\xA8 d"));
}

TEST(TextLines, WhatIsNotUtf8IsNamedByLineAndByteOfTheLineAsItIs) {
  std::istringstream in(
      "\xEF\xBB\xBFgood\nStra\xDF"
      "e\n");
  TextLines lines(in, "talk.de");
  std::string line;
  ASSERT_TRUE(lines.Next(line).value());
  const absl::Status status = lines.Next(line).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("talk.de:2: not UTF-8 from byte 5"));
}

// One line each, as the programs write it.
TEST(TextLines, ACompressedFileAndUtf16AreNamed) {
  const std::pair<std::string, const char*> kinds[] = {
      {std::string("\x1F\x8B\x08\0\0\0\0\0", 8), "talk.de is compressed with gzip"},
      {"BZh91AY&SY\x8B", "bzip2 -dc"},
      {std::string("\xFD\x37zXZ\0", 6), "xz -dc"},
      {"\x28\xB5\x2F\xFD", "zstd -dc"},
      {std::string("\xFF\xFE"
                   "a\0",
                   4),
       "talk.de is UTF-16"},
      {std::string("\xFE\xFF\0a", 4), "iconv -f UTF-16 -t UTF-8"}};
  for (const auto& [bytes, said] : kinds) {
    std::istringstream in(bytes + "\nmore\n");
    TextLines lines(in, "talk.de");
    std::string line;
    const absl::Status status = lines.Next(line).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(said));
  }
}

// A folder can be opened, but not read.
TEST(TextLines, AReadThatFailsIsNotTheEnd) {
  std::ifstream in(::testing::TempDir());
  TextLines lines(in, "folder");
  std::string line;
  const absl::Status status = lines.Next(line).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("folder:1: cannot be read"));
}

}  // namespace
}  // namespace hadal
