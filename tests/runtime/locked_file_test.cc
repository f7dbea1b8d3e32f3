#include "runtime/locked_file.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;

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
