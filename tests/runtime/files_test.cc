#include "runtime/files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/file_size_limit.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(FilesTest, PathsAreTakenApart) {
  EXPECT_EQ(JoinPath("a", "b"), "a/b");
  EXPECT_EQ(JoinPath("a/", "b"), "a/b");
  EXPECT_EQ(JoinPath("", "b"), "b");
  EXPECT_EQ(BaseName("/x/y"), "y");
  EXPECT_EQ(BaseName("x/y//"), "y");
  EXPECT_EQ(BaseName("y"), "y");
  EXPECT_EQ(DirectoryName("/x/y"), "/x");
  EXPECT_EQ(DirectoryName("/y"), "/");
  EXPECT_EQ(DirectoryName("y"), ".");
  EXPECT_TRUE(IsPlainFileName("rank_00000.safetensors"));
  for (const char* name : {"", ".", "..", "../x", "/etc/passwd", "a/b"}) EXPECT_FALSE(IsPlainFileName(name)) << name;
  EXPECT_FALSE(IsPlainFileName(std::string("a\0b", 3)));
}

TEST(FilesTest, ReadsBackWhatItWrote) {
  TemporaryDirectory directory;
  const std::string path = directory / "file";
  const std::string text(100'000, 'x');
  ASSERT_TRUE(WriteNewFile(path, text).ok());
  EXPECT_EQ(*ReadFile(path, 100'000), text);
  EXPECT_EQ(WriteNewFile(path, "again").code(), absl::StatusCode::kAlreadyExists);
}

TEST(FilesTest, RefusesAFileLargerThanTheLimitBeforeReadingIt) {
  TemporaryDirectory directory;
  // Sparse, 8 TiB: a reader that believed the size would ask for that much memory.
  ASSERT_TRUE(WriteNewFile(directory / "file", "x").ok());
  ASSERT_EQ(truncate((directory / "file").c_str(), off_t{1} << 43), 0);
  const auto read = ReadFile(directory / "file", 1000);
  EXPECT_EQ(read.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(read.status().message()), HasSubstr("8796093022208"));
}

TEST(FilesTest, ErrorsNameThePathAndTheReason) {
  TemporaryDirectory directory;
  const auto missing = ReadFile(directory / "missing", 10);
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr(directory / "missing"));
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("No such file"));
  EXPECT_EQ(ReadFile(directory.path(), 10).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(FilesTest, APipeDoesNotHangAReader) {
  TemporaryDirectory directory;
  ASSERT_EQ(mkfifo((directory / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(OpenFile(directory / "pipe").status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(FilesTest, ReadingInsideADirectoryStaysInside) {
  TemporaryDirectory directory;
  ASSERT_TRUE(MakeDirectories(directory / "in").ok());
  ASSERT_TRUE(WriteNewFile(directory / "secret", "secret").ok());
  ASSERT_EQ(symlink("../secret", (directory / "in/link").c_str()), 0);
  EXPECT_FALSE(ReadFileIn(directory / "in", "../secret", 100).ok());
  EXPECT_FALSE(ReadFileIn(directory / "in", "link", 100).ok());
  EXPECT_FALSE(ReadFileIn(directory / "in", directory / "secret", 100).ok());
}

TEST(FilesTest, AFullDiskIsResourceExhaustedAndLeavesNoFile) {
  TemporaryDirectory directory;
  {
    const FileSizeLimit limit(1000);
    const absl::Status status = WriteNewFile(directory / "file", std::string(2000, 'x'));
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  }
  EXPECT_FALSE(PathExists(directory / "file"));
}

TEST(FilesTest, NoSpaceSaysHowMuchIsFree) {
  const FileDescriptor full(open("/dev/full", O_WRONLY));
  const absl::Status status = WriteAll(full, "x", "/dev/full");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("bytes are free"));
}

TEST(FilesTest, ReplacingIsAtomicAndAFailureKeepsTheOldText) {
  TemporaryDirectory directory;
  const std::string path = directory / "file";
  ASSERT_TRUE(ReplaceFile(path, "old", "1").ok());
  ASSERT_TRUE(ReplaceFile(path, "new", "2").ok());
  EXPECT_EQ(Contents(path), "new");
  {
    const FileSizeLimit limit(10);
    EXPECT_FALSE(ReplaceFile(path, std::string(100, 'x'), "3").ok());
  }
  EXPECT_EQ(Contents(path), "new");
  EXPECT_THAT(*ListDirectory(directory.path()), ElementsAre("file"));
}

TEST(FilesTest, MakesListsAndRemovesTrees) {
  TemporaryDirectory directory;
  ASSERT_TRUE(MakeDirectories(directory / "a/b/c").ok());
  ASSERT_TRUE(MakeDirectories(directory / "a/b/c").ok());
  ASSERT_TRUE(WriteNewFile(directory / "a/b/file", "x").ok());
  ASSERT_TRUE(WriteNewFile(directory / "kept", "x").ok());
  ASSERT_EQ(symlink("../kept", (directory / "a/link").c_str()), 0);
  EXPECT_THAT(*ListDirectory(directory / "a"), ElementsAre("b", "link"));
  EXPECT_EQ(MakeDirectories(directory / "kept/x").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(MakeDirectories(directory / "kept").code(), absl::StatusCode::kAlreadyExists);
  ASSERT_TRUE(RemoveTree(directory / "a").ok());
  EXPECT_FALSE(PathExists(directory / "a"));
  EXPECT_TRUE(PathExists(directory / "kept"));
  EXPECT_TRUE(RemoveTree(directory / "a").ok());
}

TEST(FilesTest, AFileThatEndsEarlyIsDataLoss) {
  TemporaryDirectory directory;
  ASSERT_TRUE(WriteNewFile(directory / "file", "12345").ok());
  const auto file = OpenFile(directory / "file");
  char buffer[10];
  EXPECT_TRUE(ReadAt(*file, 1, 4, buffer, "file").ok());
  EXPECT_EQ(ReadAt(*file, 1, 5, buffer, "file").code(), absl::StatusCode::kDataLoss);
}

TEST(FilesTest, KnowsTheFreeSpace) { EXPECT_GT(*FreeBytes(testing::TempDir()), 0); }

}  // namespace
}  // namespace hadal
