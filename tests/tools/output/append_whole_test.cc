#include "tools/output/append_whole.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

#include "tests/support/file_size_limit.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;

TEST(AppendWhole, WhatDoesNotFitIsNotThereAtAll) {
  TemporaryDirectory directory;
  const std::string path = directory / "file";
  SetContents(path, "before\n");
  const absl::StatusOr<FileDescriptor> file = OpenForAppending(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(AppendWhole(*file, "first\n", path).ok());
  {
    const FileSizeLimit limit(20);
    const absl::Status full = AppendWhole(*file, "second, of many letters\n", path);
    EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
    EXPECT_EQ(Contents(path), "before\nfirst\n");
    EXPECT_TRUE(AppendWhole(*file, "2nd\n", path).ok()) << "there is still space for a shorter one";
  }
  EXPECT_TRUE(AppendWhole(*file, "third\n", path).ok());
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
  }
  EXPECT_TRUE(file.Append("after").ok());
  EXPECT_EQ(Contents(path), large + "after");
  EXPECT_EQ(file.TakeLost(), 1);
  EXPECT_EQ(file.TakeLost(), 0);
}

TEST(AppendWhole, WhatCannotGrowIsRefused) {
  TemporaryDirectory directory;
  EXPECT_TRUE(absl::IsFailedPrecondition(OpenForAppending(directory.path()).status()));
  EXPECT_TRUE(absl::IsNotFound(OpenForAppending(directory / "missing/file").status()));
  ASSERT_EQ(mkfifo((directory / "pipe").c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(OpenForAppending(directory / "pipe").status()));
}

}  // namespace
}  // namespace hadal
