#include "tools/translate/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "runtime/files.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

class OutputFileTest : public ::testing::Test {
 protected:
  // Writes `text` to `path`; without `finish` as a command that fails then.
  static absl::Status Write(const std::string& path, const std::string& text, bool finish = true) {
    OutputFile file;
    if (absl::Status status = file.Open(path, {}); !status.ok()) return status;
    file.stream() << text << std::flush;
    return finish ? file.Finish() : absl::OkStatus();
  }

  TemporaryDirectory directory_;
  const std::string path_ = directory_ / "out";
};

TEST_F(OutputFileTest, ItIsWholeOrNotThere) {
  ASSERT_TRUE(Write(path_, "", /*finish=*/false).ok());
  EXPECT_TRUE(ListDirectory(directory_.path())->empty());
  ASSERT_TRUE(Write(path_, "a\n", /*finish=*/false).ok());
  EXPECT_FALSE(PathExists(path_));
  EXPECT_EQ(Contents(path_ + ".partial"), "a\n");
  ASSERT_TRUE(Write(path_, "b\n").ok());
  EXPECT_EQ(Contents(path_), "b\n");
  EXPECT_FALSE(PathExists(path_ + ".partial"));
  ASSERT_TRUE(Write(path_, "", /*finish=*/false).ok());
  EXPECT_EQ(Contents(path_), "b\n");
  EXPECT_EQ(Write(directory_ / "nowhere/out", "c\n").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Write(directory_.path(), "c\n").code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(OutputFileTest, ALinkStaysALink) {
  std::filesystem::create_symlink("out", directory_ / "link");
  for (const std::string text : {"new\n", "other\n"}) {
    ASSERT_TRUE(Write(directory_ / "link", text).ok());
    EXPECT_EQ(Contents(path_), text);
    EXPECT_TRUE(std::filesystem::is_symlink(directory_ / "link"));
  }
}

TEST_F(OutputFileTest, AnOpenFileIsWrittenAsItIs) {
  const int open_file = open(path_.c_str(), O_WRONLY | O_CREAT, 0666);
  std::filesystem::create_symlink(absl::StrCat("/proc/self/fd/", open_file), directory_ / "stdout");
  ASSERT_TRUE(Write(directory_ / "stdout", "a\n").ok());
  struct stat of_file, of_path;
  ASSERT_EQ(fstat(open_file, &of_file) + stat(path_.c_str(), &of_path), 0);
  EXPECT_EQ(of_file.st_ino, of_path.st_ino);
  EXPECT_EQ(Contents(path_), "a\n");
  EXPECT_TRUE(Write("/dev/null", "a\n").ok());
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  close(open_file);
}

TEST_F(OutputFileTest, NoInputIsEmptied) {
  SetContents(path_ + ".partial", "an input\n");
  OutputFile file;
  EXPECT_EQ(file.Open(path_, {path_ + ".partial"}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Contents(path_ + ".partial"), "an input\n");
}

}  // namespace
}  // namespace hadal
