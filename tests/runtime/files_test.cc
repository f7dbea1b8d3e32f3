#include "runtime/files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <thread>

#include "runtime/locked_file.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/recorded_syncs.h"
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
  EXPECT_TRUE(IsPlainFileName(std::string(255, 'x')));
  EXPECT_FALSE(IsPlainFileName(std::string(256, 'x'))) << "no file system takes it";
}

TEST(FilesTest, ReadsBackWhatItWrote) {
  TemporaryDirectory directory;
  const std::string path = directory / "file";
  const std::string text(100'000, 'x');
  ASSERT_TRUE(WriteNewFile(path, text).ok());
  EXPECT_EQ(*ReadFile(path, 100'000), text);
  EXPECT_FALSE(ReadFile(path, 99'999).ok());
  EXPECT_EQ(WriteNewFile(path, "again").code(), absl::StatusCode::kAlreadyExists);
}

TEST(FilesTest, RefusesAFileLargerThanTheLimitBeforeReadingIt) {
  TemporaryDirectory directory;
  // Sparse, 8 TiB: a reader that believed the size would ask for that much memory.
  ASSERT_TRUE(WriteNewFile(directory / "file", "x").ok());
  ASSERT_EQ(truncate((directory / "file").c_str(), off_t{1} << 43), 0);
  const auto read = ReadFile(directory / "file", 1000);
  EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument);
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

TEST(FilesTest, CallersCanTellErrorsApart) {
  const std::pair<int, absl::StatusCode> codes[] = {
      {ENOENT, absl::StatusCode::kNotFound},          {EACCES, absl::StatusCode::kPermissionDenied},
      {EROFS, absl::StatusCode::kPermissionDenied},   {ENOSPC, absl::StatusCode::kResourceExhausted},
      {EDQUOT, absl::StatusCode::kResourceExhausted}, {EMFILE, absl::StatusCode::kResourceExhausted},
      {EEXIST, absl::StatusCode::kAlreadyExists},     {EISDIR, absl::StatusCode::kFailedPrecondition},
      {ELOOP, absl::StatusCode::kFailedPrecondition}, {EIO, absl::StatusCode::kInternal},
      {ESTALE, absl::StatusCode::kInternal},          {EINVAL, absl::StatusCode::kInternal},
      {EPERM, absl::StatusCode::kPermissionDenied},   {EFBIG, absl::StatusCode::kResourceExhausted},
      {ENFILE, absl::StatusCode::kResourceExhausted}, {ENOTDIR, absl::StatusCode::kFailedPrecondition},
      {ENXIO, absl::StatusCode::kFailedPrecondition}, {ENODEV, absl::StatusCode::kFailedPrecondition}};
  for (const auto& [error, code] : codes) {
    const absl::Status status = ErrnoStatus(error, "read", "/some/file");
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("cannot read /some/file: "));
  }
}

TEST(FilesTest, ADescriptorIsClosedWithItsOwnerAndWhenAnotherTakesItsPlace) {
  const auto is_open = [](int fd) { return fcntl(fd, F_GETFD) >= 0; };
  int first = -1, second = -1;
  {
    FileDescriptor file(open("/dev/null", O_RDONLY));
    first = file.get();
    FileDescriptor other(open("/dev/null", O_RDONLY));
    second = other.get();
    file = std::move(other);
    EXPECT_FALSE(is_open(first));
    EXPECT_TRUE(is_open(second));
  }
  EXPECT_FALSE(is_open(second));
}

TEST(FilesTest, APipeDoesNotHangAReader) {
  TemporaryDirectory directory;
  ASSERT_EQ(mkfifo((directory / "pipe").c_str(), 0600), 0);
  const absl::Status pipe = OpenFile(directory / "pipe").status();
  EXPECT_EQ(pipe.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(pipe.message()), HasSubstr("a pipe or a device; save its output to a file"));
  EXPECT_THAT(std::string(OpenFile(directory.path()).status().message()), HasSubstr("a directory; name a file"));
}

TEST(FilesTest, InsideADirectoryOnlyFilesAreOpenedAndAnythingElseIsDamage) {
  TemporaryDirectory directory;
  ASSERT_TRUE(MakeDirectories(directory / "in/folder").ok());
  ASSERT_TRUE(WriteNewFile(directory / "secret", "secret").ok());
  ASSERT_TRUE(WriteNewFile(directory / "in/file", "text").ok());
  ASSERT_EQ(symlink("../secret", (directory / "in/link").c_str()), 0);
  ASSERT_EQ(mkfifo((directory / "in/pipe").c_str(), 0600), 0);
  const FileDescriptor in = *OpenDirectory(directory / "in");
  for (const std::string& name : {std::string("../secret"), std::string("link"), directory / "secret",
                                  std::string("folder"), std::string("pipe")}) {
    EXPECT_EQ(OpenFileIn(in, directory / "in", name).status().code(), absl::StatusCode::kDataLoss) << name;
  }
  EXPECT_TRUE(absl::IsNotFound(OpenFileIn(in, directory / "in", "missing").status()));
  ASSERT_TRUE(RenamePath(directory / "in", directory / "renamed").ok());
  EXPECT_TRUE(OpenFileIn(in, directory / "in", "file").ok()) << "the descriptor stays with the directory";
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

TEST(FilesTest, ErrorsOfReplacingSpeakOfTheFileThatWasAskedFor) {
  TemporaryDirectory directory;
  const std::string path = directory / "missing/file";
  const absl::Status status = ReplaceFile(path, "text", "4711");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "cannot create " + path + ": there is no directory " + (directory / "missing") +
                                  "; create it, or choose another path");
  ASSERT_TRUE(MakeDirectories(path).ok());
  const absl::Status replaced = ReplaceFile(path, "text", "4711");
  EXPECT_EQ(replaced.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(replaced.message()), HasSubstr("cannot replace " + path + ": "));
  EXPECT_THAT(std::string(replaced.message()), HasSubstr("a directory has that name"));
  EXPECT_THAT(*ListDirectory(directory / "missing"), ElementsAre("file"));
  const FileSizeLimit limit(10);
  const absl::Status full = ReplaceFile(directory / "large", std::string(100, 'x'), "4711");
  EXPECT_THAT(std::string(full.message()), HasSubstr("cannot write " + (directory / "large") + ": "));
}

// Renaming a file over /dev/null would take it from the whole machine.
TEST(FilesTest, ADeviceOrAPipeIsNotReplaced) {
  TemporaryDirectory directory;
  ASSERT_EQ(mkfifo((directory / "pipe").c_str(), 0600), 0);
  ASSERT_EQ(symlink("/dev/null", (directory / "null").c_str()), 0);
  ASSERT_TRUE(WriteNewFile(directory / "redirected", "").ok());
  const FileDescriptor redirected = *OpenFile(directory / "redirected");
  ASSERT_EQ(symlink(("/proc/self/fd/" + std::to_string(redirected.get())).c_str(), (directory / "stdout").c_str()), 0);
  for (const std::string name : {"pipe", "null", "stdout"}) {
    const absl::Status status = ReplaceFile(directory / name, "text", "1");
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr("cannot replace " + (directory / name) + ": "));
    EXPECT_THAT(std::string(status.message()), HasSubstr("choose the name of a file"));
    EXPECT_EQ(CheckCreatable(directory / name), status);
  }
  EXPECT_TRUE(std::filesystem::is_fifo(directory / "pipe"));
  EXPECT_THAT(*ListDirectory(directory.path()), ElementsAre("null", "pipe", "redirected", "stdout"));
}

TEST(FilesTest, ATemporaryFileOrLinkOfACrashDoesNotStopReplacing) {
  for (const bool link : {false, true}) {
    TemporaryDirectory directory;
    const std::string left = directory / "file.new";
    ASSERT_TRUE(link ? symlink("elsewhere", left.c_str()) == 0 : WriteNewFile(left, "half of").ok());
    ASSERT_TRUE(ReplaceFile(directory / "file", "text", "new").ok());
    EXPECT_EQ(Contents(directory / "file"), "text");
    EXPECT_THAT(*ListDirectory(directory.path()), ElementsAre("file"));
  }
}

// Who writes under the temporary name keeps it: its text is neither mixed with another's nor renamed half written.
TEST(FilesTest, AWriterLeavesAnothersTemporaryFileAlone) {
  TemporaryDirectory directory;
  const absl::StatusOr<FileDescriptor> other = OpenLocked(directory / "file.new");
  ASSERT_TRUE(WriteAll(*other, "half of", "file.new").ok());
  const absl::Status status = ReplaceFile(directory / "file", "text", "new");
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(Contents(directory / "file"), "text");
  EXPECT_EQ(Contents(directory / "file.new"), "half of");
  EXPECT_THAT(*ListDirectory(directory.path()), ElementsAre("file", "file.new"));
}

// Texts of different lengths, so that a mixture would be seen.
TEST(FilesTest, OfWritersAtOnceOneWinsWhole) {
  TemporaryDirectory directory;
  const std::vector<std::string> texts = {std::string(100'000, 'a'), std::string(150'000, 'b'),
                                          std::string(200'000, 'c')};
  std::vector<std::thread> writers;
  for (const std::string& text : texts) {
    writers.emplace_back([&] {
      for (int i = 0; i < 30; ++i) EXPECT_EQ(ReplaceFile(directory / "file", text, "new"), absl::OkStatus());
    });
  }
  std::atomic<bool> done = false;
  std::thread reader([&] {
    while (!done) {
      const absl::StatusOr<std::string> text = ReadFile(directory / "file", 1'000'000);
      if (!text.ok()) continue;  // not there yet
      EXPECT_TRUE(std::find(texts.begin(), texts.end(), *text) != texts.end()) << text->size();
    }
  });
  for (std::thread& writer : writers) writer.join();
  done = true;
  reader.join();
  EXPECT_THAT(*ListDirectory(directory.path()), ElementsAre("file"));
}

TEST(FilesTest, WhetherAFileCanBeCreatedIsToldBeforehand) {
  TemporaryDirectory directory;
  ASSERT_TRUE(WriteNewFile(directory / "file", "x").ok());
  EXPECT_TRUE(CheckCreatable(directory / "other").ok());
  EXPECT_TRUE(CheckCreatable(directory / "file").ok());
  EXPECT_EQ(CheckCreatable(directory / "missing/file").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(CheckCreatable(directory.path()).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(CheckCreatable(directory / "file/below").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(PathExists(directory / "other"));
}

TEST(FilesTest, WhatIsReadIsNotWrittenUnderAnotherName) {
  TemporaryDirectory directory;
  ASSERT_TRUE(WriteNewFile(directory / "text", "x").ok());
  ASSERT_EQ(symlink("text", (directory / "link").c_str()), 0);
  EXPECT_TRUE(CheckIsNoneOf(directory / "new", {directory / "text", ""}).ok());
  EXPECT_TRUE(CheckIsNoneOf("/dev/null", {"/dev/null"}).ok());
  const absl::Status status = CheckIsNoneOf(directory / "link", {"", directory / "text"});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("would empty " + (directory / "text")));
}

TEST(FilesTest, TheDirectoryThatCannotBeMadeIsNamed) {
  TemporaryDirectory directory;
  ASSERT_TRUE(WriteNewFile(directory / "file", "x").ok());
  const absl::Status status = MakeDirectories(directory / "file/below/deeper");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot make directory " + (directory / "file/below") + ": "));
  ASSERT_EQ(symlink("unmounted", (directory / "link").c_str()), 0);
  EXPECT_THAT(std::string(MakeDirectories(directory / "link/below").message()),
              HasSubstr("link to a place that is not there"));
  ASSERT_EQ(symlink("loop", (directory / "loop").c_str()), 0);
  EXPECT_THAT(std::string(MakeDirectories(directory / "loop/below").message()), HasSubstr("Too many levels"));
}

TEST(FilesTest, NewFilesHaveThePermissionsThatTheUmaskLeaves) {
  TemporaryDirectory directory;
  const mode_t before = umask(002);
  EXPECT_TRUE(MakeDirectories(directory / "folder").ok());
  EXPECT_TRUE(WriteNewFile(directory / "folder/file", "x").ok());
  umask(before);
  struct stat info;
  ASSERT_EQ(stat((directory / "folder").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0775u);
  ASSERT_EQ(stat((directory / "folder/file").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0664u);
}

// The text before its name, its name before the caller hears of it.
TEST(FilesTest, WhatIsWrittenIsOnTheDeviceBeforeItIsReported) {
  TemporaryDirectory directory;
  const RecordedSyncs syncs;
  ASSERT_TRUE(WriteNewFile(directory / "new", "text").ok());
  EXPECT_THAT(syncs.paths(), ElementsAre(directory / "new"));
  ASSERT_TRUE(ReplaceFile(directory / "file", "text", "1").ok());
  EXPECT_THAT(syncs.paths(), ElementsAre(directory / "new", directory / "file.1", directory.path()));
}

TEST(FilesTest, WhatTheDeviceRefusesIsNoSuccess) {
  TemporaryDirectory directory;
  RecordedSyncs syncs;
  syncs.FailNext(EIO);
  const absl::Status written = WriteNewFile(directory / "new", "text");
  EXPECT_EQ(written.code(), absl::StatusCode::kInternal) << "no file is damaged";
  EXPECT_THAT(std::string(written.message()), HasSubstr("try again"));
  syncs.FailNext(ENOSPC);
  EXPECT_EQ(ReplaceFile(directory / "file", "text", "1").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(*ListDirectory(directory.path()), ElementsAre());
  syncs.FailNext(EIO);
  EXPECT_EQ(SyncDirectory(directory.path()).code(), absl::StatusCode::kInternal);
  syncs.FailNext(EINVAL);
  EXPECT_TRUE(SyncDirectory(directory.path()).ok()) << "a file system that does not sync directories";
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
  EXPECT_FALSE(RemoveTree("/proc/self/status").ok()) << "it cannot be removed";
  EXPECT_EQ(ListDirectory(directory / "a").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(RenamePath(directory / "a", directory / "b").message()),
              HasSubstr("cannot rename " + (directory / "a") + " to " + (directory / "b") + ": "));
}

TEST(FilesTest, ListsAreSortedWhateverTheFileSystemsOrder) {
  TemporaryDirectory directory;
  std::vector<std::string> names;
  for (int i = 20; i > 0; --i) {
    names.push_back("name" + std::to_string(i * i));
    ASSERT_TRUE(WriteNewFile(directory / names.back(), "").ok());
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(*ListDirectory(directory.path()), names);
}

TEST(FilesTest, RemovingATreeLeavesWhatItsLinksLeadTo) {
  TemporaryDirectory directory;
  ASSERT_TRUE(MakeDirectories(directory / "kept").ok());
  ASSERT_TRUE(MakeDirectories(directory / "removed").ok());
  ASSERT_TRUE(WriteNewFile(directory / "kept/file", "x").ok());
  ASSERT_EQ(symlink("../kept", (directory / "removed/link").c_str()), 0);
  ASSERT_TRUE(RemoveTree(directory / "removed").ok());
  EXPECT_THAT(*ListDirectory(directory.path()), ElementsAre("kept"));
  EXPECT_TRUE(PathExists(directory / "kept/file"));
}

TEST(FilesTest, AFileThatEndsEarlyIsDataLoss) {
  TemporaryDirectory directory;
  ASSERT_TRUE(WriteNewFile(directory / "file", "12345").ok());
  const auto file = OpenFile(directory / "file");
  char buffer[10];
  EXPECT_TRUE(ReadAt(*file, 1, 4, buffer, "file").ok());
  const absl::Status cut = ReadAt(*file, 1, 5, buffer, "file");
  EXPECT_EQ(cut.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(cut.message()), HasSubstr("file ends at byte 5, 1 bytes before it should"));
}

// Others write meanwhile.
TEST(FilesTest, KnowsTheFreeSpaceInBytes) {
  const auto free = static_cast<double>(*FreeBytes(testing::TempDir()));
  const auto available = static_cast<double>(std::filesystem::space(testing::TempDir()).available);
  EXPECT_GT(free, 0.5 * available);
  EXPECT_LT(free, 2 * available);
}

}  // namespace
}  // namespace hadal
