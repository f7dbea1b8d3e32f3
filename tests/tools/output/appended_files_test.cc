#include "tools/output/append_whole.h"

#include <sys/stat.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/temporary_directory.h"
#include "tools/output/tensorboard.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(AppendWhole, WhatDoesNotFitIsNotThereAtAll) {
  TemporaryDirectory directory;
  const std::string path = directory / "file";
  SetContents(path, "before\n");
  const FileDescriptor file = OpenForAppending(path).value();
  EXPECT_TRUE(AppendWhole(file, "first\n", path).ok());
  {
    const FileSizeLimit limit(20);
    const absl::Status full = AppendWhole(file, "second, of many letters\n", path);
    EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
    EXPECT_EQ(Contents(path), "before\nfirst\n");
    EXPECT_TRUE(AppendWhole(file, "2nd\n", path).ok()) << "there is still space for a shorter one";
  }
  EXPECT_TRUE(AppendWhole(file, "third\n", path).ok());
  EXPECT_EQ(Contents(path), "before\nfirst\n2nd\nthird\n");
}

TEST(WholeAppender, WhatDoesNotFitComesInOrderWhenThereIsSpace) {
  TemporaryDirectory directory;
  const std::string path = directory / "file";
  WholeAppender file(*OpenForAppending(path), path);
  {
    const FileSizeLimit limit(5);
    EXPECT_TRUE(file.Append("one\n").ok());
    EXPECT_TRUE(absl::IsResourceExhausted(file.Append("two\n")));
    EXPECT_TRUE(absl::IsResourceExhausted(file.Append("3"))) << "there is space for it, but not for what comes before";
    EXPECT_THAT(std::string(file.WriteHeld().message()), HasSubstr("not in the file: 2 lines or records"));
    EXPECT_EQ(Contents(path), "one\n");
  }
  EXPECT_TRUE(file.Append("\n").ok());
  EXPECT_EQ(Contents(path), "one\ntwo\n3\n");
  EXPECT_EQ(file.TakeLost(), 0);
}

TEST(WholeAppender, HoldsSoMuchAndCountsTheRest) {
  TemporaryDirectory directory;
  const std::string path = directory / "file", large(WholeAppender::kMostHeldBytes, 'x');
  WholeAppender file(*OpenForAppending(path), path);
  {
    const FileSizeLimit limit(0);
    EXPECT_FALSE(file.Append(large).ok());
    EXPECT_FALSE(file.Append("too much").ok());
    EXPECT_THAT(std::string(file.WriteHeld().message()), HasSubstr("not in the file: 2 lines or records"));
  }
  EXPECT_TRUE(file.Append("after").ok());
  EXPECT_EQ(Contents(path), large + "after");
  EXPECT_EQ(file.TakeLost(), 1);
  EXPECT_EQ(file.TakeLost(), 0);
  {
    const FileSizeLimit limit(0);
    EXPECT_FALSE(file.Append("held").ok());
  }
  EXPECT_TRUE(file.WriteHeld().ok());
  EXPECT_EQ(std::filesystem::file_size(path), large.size() + 9) << "what was written no longer takes space";
}

TEST(AppendWhole, WhatCannotGrowIsRefused) {
  TemporaryDirectory directory;
  EXPECT_TRUE(absl::IsFailedPrecondition(OpenForAppending(directory.path()).status()));
  EXPECT_TRUE(absl::IsNotFound(OpenForAppending(directory / "missing/file").status()));
  ASSERT_EQ(mkfifo((directory / "pipe").c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(OpenForAppending(directory / "pipe").status()));
}

// What TensorBoard 2.21's RecordWriter writes for "hadal" and for an empty record.
constexpr char kHadal[] = "0500000000000000eab2043e686164616cb4ffbc9d";
constexpr char kEmpty[] = "000000000000000029039807d8ea82a2";

TEST(FrameRecord, FramesAsTensorFlowDoes) {
  EXPECT_EQ(absl::BytesToHexString(FrameRecord("hadal")), kHadal);
  EXPECT_EQ(absl::BytesToHexString(FrameRecord("")), kEmpty);
}

TEST(FrameRecord, GivesBackItsRecordsUpToOneThatIsCutOrHasADamagedLength) {
  std::string bytes = FrameRecord("first") + FrameRecord("second") + FrameRecord("");
  std::string_view in = bytes;
  std::optional<std::string_view> data;
  for (const char* content : {"first", "second", ""}) {
    ASSERT_TRUE(TakeRecord(in, data));
    EXPECT_EQ(data, content);
  }
  EXPECT_FALSE(TakeRecord(in, data));
  for (size_t size = 0; size < FrameRecord("first").size(); ++size) {
    in = std::string_view(bytes).substr(0, size);
    EXPECT_FALSE(TakeRecord(in, data)) << size;
  }
  bytes[13] ^= 1;  // of "first"
  in = bytes;
  EXPECT_TRUE(TakeRecord(in, data) && data == std::nullopt);
  EXPECT_TRUE(TakeRecord(in, data) && data == "second");
  bytes[0] ^= 1;
  in = bytes;
  EXPECT_FALSE(TakeRecord(in, data));
}

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
