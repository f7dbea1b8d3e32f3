#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "runtime/locked_file.h"
#include "runtime/mapped_file.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;

std::string TextOf(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST(MappedFileTest, HoldsTheFile) {
  const TemporaryDirectory directory;
  for (const std::string& contents : {std::string(), std::string("x"), std::string(100000, 'y')}) {
    SetContents(directory / "file", contents);
    EXPECT_EQ(TextOf(*MappedFile::Open(directory / "file")), contents);
  }
}

TEST(MappedFileTest, AMovedMappingStaysValid) {
  const TemporaryDirectory directory;
  SetContents(directory / "file", "abc");
  MappedFile first = *MappedFile::Open(directory / "file");
  const MappedFile second = std::move(first);
  std::filesystem::remove(directory / "file");
  EXPECT_EQ(TextOf(second), "abc");
  EXPECT_TRUE(first.bytes().empty());  // NOLINT(bugprone-use-after-move): what is left is the point
}

TEST(MappedFileTest, WhatIsNoFileIsRefused) {
  EXPECT_EQ(MappedFile::Open("/nonexistent/file").status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(MappedFile::Open(::testing::TempDir()).ok());
}

using ::testing::IsNull;
using ::testing::StrEq;

TEST(MappedRanges, KnowsWhichFileAnAddressIsIn) {
  const std::vector<std::byte> memory(30);
  const std::span<const std::byte> all(memory), first = all.subspan(0, 10), second = all.subspan(10, 10);
  RememberMappedRange(first, "first");
  RememberMappedRange(second, "second");
  EXPECT_THAT(MappedPathAt(&memory[0]), StrEq("first"));
  EXPECT_THAT(MappedPathAt(&memory[9]), StrEq("first"));
  EXPECT_THAT(MappedPathAt(&memory[10]), StrEq("second"));
  EXPECT_THAT(MappedPathAt(&memory[19]), StrEq("second"));
  EXPECT_THAT(MappedPathAt(&memory[20]), IsNull());
  EXPECT_THAT(MappedPathAt(nullptr), IsNull());
  ForgetMappedRange(first);
  EXPECT_THAT(MappedPathAt(&memory[9]), IsNull());
  EXPECT_THAT(MappedPathAt(&memory[10]), StrEq("second"));
  RememberMappedRange(first, "anew");
  EXPECT_THAT(MappedPathAt(&memory[0]), StrEq("anew")) << "a shorter name in the place of a longer one";
  ForgetMappedRange(first);
  ForgetMappedRange(second);
}

TEST(MappedRanges, OfALongPathItsEndIsKnown) {
  const std::vector<std::byte> memory(1);
  for (const size_t length : {size_t{255}, size_t{256}, size_t{4000}}) {
    const std::string path = std::string(length - 3, 'x') + "/ab";
    RememberMappedRange(memory, path);
    EXPECT_THAT(MappedPathAt(memory.data()), StrEq(path.substr(path.size() - 255)));
    ForgetMappedRange(memory);
  }
}

TEST(MappedRanges, MoreThanThereIsRoomForDoNoHarm) {
  const std::vector<std::byte> memory(kMostMappedRanges + 1);
  const std::span<const std::byte> all(memory);
  for (int i = 0; i <= kMostMappedRanges; ++i) RememberMappedRange(all.subspan(i, 1), "a file");
  EXPECT_THAT(MappedPathAt(&memory[kMostMappedRanges - 1]), StrEq("a file"));
  EXPECT_THAT(MappedPathAt(&memory[kMostMappedRanges]), IsNull());
  for (int i = 0; i <= kMostMappedRanges; ++i) ForgetMappedRange(all.subspan(i, 1));
  EXPECT_THAT(MappedPathAt(&memory[0]), IsNull());
}

TEST(MappedRanges, AMappedFileIsKnownWhileItLives) {
  const TemporaryDirectory directory;
  const std::string path = directory / "file";
  SetContents(path, "abc");
  std::optional<MappedFile> file = *MappedFile::Open(path);
  const std::byte* const place = file->bytes().data();
  EXPECT_THAT(MappedPathAt(place + 2), StrEq(path));
  MappedFile moved = *std::move(file);
  file.reset();
  EXPECT_THAT(MappedPathAt(place), StrEq(path));
  moved = MappedFile();
  EXPECT_THAT(MappedPathAt(place), IsNull());
}

TEST(LockedFile, OneHasItAtATime) {
  TemporaryDirectory directory;
  {
    const absl::StatusOr<FileDescriptor> first = OpenLocked(directory / "lock");
    ASSERT_TRUE(first.ok()) << first.status();
    const absl::Status second = OpenLocked(directory / "lock").status();
    EXPECT_TRUE(absl::IsAborted(second)) << second;
    EXPECT_THAT(second.message(), HasSubstr(directory / "lock"));
    EXPECT_TRUE(OpenLocked(directory / "other").ok());
  }
  EXPECT_TRUE(OpenLocked(directory / "lock").ok());
}

TEST(LockedFile, AKilledProcessLeavesNoLock) {
  TemporaryDirectory directory;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const absl::StatusOr<FileDescriptor> held = OpenLocked(directory / "lock");
    if (!held.ok() || write(ready[1], "x", 1) != 1) _exit(1);
    while (true) pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_TRUE(absl::IsAborted(OpenLocked(directory / "lock").status()));
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(PathExists(directory / "lock"));
  EXPECT_TRUE(OpenLocked(directory / "lock").ok());
  close(ready[0]);
  close(ready[1]);
}

TEST(LockedFile, ContentsStayAndTheHolderMayRenameIt) {
  TemporaryDirectory directory;
  SetContents(directory / "file", "text");
  const absl::StatusOr<FileDescriptor> held = OpenLocked(directory / "file");
  ASSERT_TRUE(held.ok()) << held.status();
  EXPECT_EQ(Contents(directory / "file"), "text");
  ASSERT_TRUE(RenamePath(directory / "file", directory / "moved").ok());
  EXPECT_TRUE(OpenLocked(directory / "file").ok()) << "the name is free";
  EXPECT_TRUE(absl::IsAborted(OpenLocked(directory / "moved").status()));
}

TEST(LockedFile, OnlyARegularFileOfThatNameIsTaken) {
  TemporaryDirectory directory;
  SetContents(directory / "file", "text");
  ASSERT_EQ(symlink("file", (directory / "link").c_str()), 0);
  ASSERT_EQ(mkfifo((directory / "pipe").c_str(), 0600), 0);
  for (const char* name : {"link", "pipe", "."}) EXPECT_FALSE(OpenLocked(directory / name).ok()) << name;
  EXPECT_TRUE(absl::IsNotFound(OpenLocked(directory / "missing/file").status()));
}

}  // namespace
}  // namespace hadal
