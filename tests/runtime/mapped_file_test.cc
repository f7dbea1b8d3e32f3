#include "runtime/mapped_file.h"

#include <filesystem>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

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

}  // namespace
}  // namespace hadal
