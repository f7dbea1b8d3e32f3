#include "tools/metrics/append_whole.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

#include "tests/support/file_size_limit.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

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

TEST(AppendWhole, WhatCannotGrowIsRefused) {
  TemporaryDirectory directory;
  EXPECT_TRUE(absl::IsFailedPrecondition(OpenForAppending(directory.path()).status()));
  EXPECT_TRUE(absl::IsNotFound(OpenForAppending(directory / "missing/file").status()));
  ASSERT_EQ(mkfifo((directory / "pipe").c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(OpenForAppending(directory / "pipe").status()));
}

}  // namespace
}  // namespace hadal
