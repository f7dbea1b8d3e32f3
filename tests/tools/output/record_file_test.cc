#include "tools/output/tensorboard.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "gtest/gtest.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

// What TensorBoard 2.21's RecordWriter writes for "hadal" and for an empty record.
constexpr char kHadal[] = "0500000000000000eab2043e686164616cb4ffbc9d";
constexpr char kEmpty[] = "000000000000000029039807d8ea82a2";

TEST(RecordFile, FramesAsTensorFlowDoes) {
  EXPECT_EQ(absl::BytesToHexString(FrameRecord("hadal")), kHadal);
  EXPECT_EQ(absl::BytesToHexString(FrameRecord("")), kEmpty);
}

TEST(RecordFile, ARecordIsReadableAtOnce) {
  const TemporaryDirectory directory;
  const std::string path = directory / "file";
  auto file = RecordFile::Create(path);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE(file->Append("hadal").ok());
  ASSERT_TRUE(file->Append("").ok());
  EXPECT_EQ(absl::BytesToHexString(Contents(path)), std::string(kHadal) + kEmpty);
}

TEST(RecordFile, ReportsAFullDisk) {
  auto file = RecordFile::Create("/dev/full");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(absl::IsResourceExhausted(file->Append("x")));
  EXPECT_FALSE(RecordFile::Create("/nonexistent/file").ok());
}

}  // namespace
}  // namespace hadal
