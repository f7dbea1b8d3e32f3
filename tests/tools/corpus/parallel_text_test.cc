// The reader alone; prepare_corpus_test.cc has what becomes of its lines.
#include "tools/corpus/parallel_text.h"

#include <sys/stat.h>

#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temporary_directory.h"
#include "tools/corpus/text_lines.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

class ParallelTextTest : public ::testing::Test {
 protected:
  ParallelReader Open(const std::string& source, const std::string& target) {
    SetContents(directory_ / "source", source);
    SetContents(directory_ / "target", target);
    return ParallelReader::Open({.source = directory_ / "source", .target = directory_ / "target"}).value();
  }
  // All pairs; the status is that of the end.
  static absl::Status ReadAll(ParallelReader& reader, std::vector<std::pair<std::string, std::string>>& pairs) {
    ParallelLine line;
    while (true) {
      const absl::StatusOr<bool> more = reader.Next(line);
      if (!more.ok() || !*more) return more.status();
      pairs.emplace_back(line.source, line.target);
      EXPECT_EQ(line.number, std::ssize(pairs));
    }
  }

  TemporaryDirectory directory_;
  std::vector<std::pair<std::string, std::string>> pairs_;
};

TEST_F(ParallelTextTest, ByteOrderMarksAndCarriageReturnsAreTakenOffAndCounted) {
  ParallelReader reader = Open(
      "\xEF\xBB\xBF"
      "a\r\nb\r\n",
      "c\nd\r\r\n");
  EXPECT_TRUE(ReadAll(reader, pairs_).ok());
  EXPECT_THAT(pairs_, ElementsAre(Pair("a", "c"), Pair("b", "d\r")));
  EXPECT_TRUE(reader.had_byte_order_mark());
  EXPECT_EQ(reader.carriage_returns(), 3);
}

TEST_F(ParallelTextTest, UnequalLengthsAreAnErrorWithBothCountsWhicheverIsLonger) {
  const struct {
    std::string source, target, counts;
  } cases[] = {{"a\nb\nc\nd", "x\n", "source has 4 lines, "},
               {"a\n", "x\ny\nz\n", "target has 3 lines, "},
               {"", "x\n", "target has 1 lines, "},
               {"a\n\n", "x\n", "source has 2 lines, "}};
  for (const auto& [source, target, counts] : cases) {
    ParallelReader reader = Open(source, target);
    pairs_.clear();
    const absl::Status status = ReadAll(reader, pairs_);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(counts));
  }
}

TEST_F(ParallelTextTest, BlankSidesAndInvalidBytesAreMarkedAndReadingGoesOn) {
  ParallelReader reader = Open("a\n \t\nc\n\xFF\ne\n", "x\ny\n\nz\nbad \xC3\n");
  ParallelLine line;
  std::vector<bool> empty;
  std::vector<std::string> invalid;
  while (reader.Next(line).value()) {
    empty.push_back(line.empty);
    invalid.push_back(line.invalid);
  }
  EXPECT_THAT(empty, ElementsAre(false, true, true, false, false));
  EXPECT_THAT(invalid, ElementsAre("", "", "", AllOf(HasSubstr("source:4: "), EndsWith("byte 1 of the line on")),
                                   AllOf(HasSubstr("target:5: "), EndsWith("byte 5 of the line on"))));
}

TEST_F(ParallelTextTest, ABlankLineOfColumnsIsBlankOnBothSides) {
  SetContents(directory_ / "columns", "one\teins\n\n \r\n");
  ParallelReader reader =
      *ParallelReader::Open({.source = directory_ / "columns", .target = directory_ / "columns", .columns = true});
  ParallelLine line;
  EXPECT_TRUE(reader.Next(line).value());
  EXPECT_EQ(line.target, "eins");
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(reader.Next(line).value());
    EXPECT_TRUE(line.empty);
    EXPECT_EQ(line.invalid, "");
  }
  EXPECT_FALSE(reader.Next(line).value());
}

TEST_F(ParallelTextTest, PlainTextIsTheTargetAlone) {
  SetContents(directory_ / "text", "a\n\nb");
  ParallelReader reader = ParallelReader::Open({.target = directory_ / "text"}).value();
  ParallelLine line;
  std::vector<std::string> targets;
  while (reader.Next(line).value()) {
    EXPECT_THAT(line.source, IsEmpty());
    EXPECT_EQ(line.empty, line.target.empty());
    targets.push_back(line.target);
  }
  EXPECT_THAT(targets, ElementsAre("a", "", "b"));
}

TEST_F(ParallelTextTest, APipeIsReadOnce) {
  const std::string pipe = directory_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(pipe) << "a\n"; });
  auto reader = ParallelReader::Open({.source = "", .target = pipe});
  ParallelLine line;
  ASSERT_TRUE(reader.ok() && *reader->Next(line)) << reader.status();
  EXPECT_EQ(line.target, "a");
  writer.join();
}

TEST_F(ParallelTextTest, WhatIsNoFileIsRefusedBeforeReading) {
  SetContents(directory_ / "good", "a\n");
  EXPECT_EQ(ParallelReader::Open({.source = directory_ / "none", .target = directory_ / "good"}).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(ParallelReader::Open({.source = directory_ / "good", .target = directory_.path()}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

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
