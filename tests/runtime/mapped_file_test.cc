#include "runtime/mapped_file.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace hadal {
namespace {

std::string Store(const std::string& contents) {
  const std::string path =
      ::testing::TempDir() + "hadal_mapped_" + ::testing::UnitTest::GetInstance()->current_test_info()->name();
  std::ofstream(path, std::ios::binary | std::ios::trunc) << contents;
  return path;
}

std::string TextOf(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST(MappedFileTest, HoldsTheFile) {
  for (const std::string& contents : {std::string(), std::string("x"), std::string(100000, 'y')}) {
    const std::string path = Store(contents);
    EXPECT_EQ(TextOf(*MappedFile::Open(path)), contents);
    std::filesystem::remove(path);
  }
}

TEST(MappedFileTest, AMovedMappingStaysValid) {
  const std::string path = Store("abc");
  MappedFile first = *MappedFile::Open(path);
  const MappedFile second = std::move(first);
  std::filesystem::remove(path);
  EXPECT_EQ(TextOf(second), "abc");
  EXPECT_TRUE(first.bytes().empty());  // NOLINT(bugprone-use-after-move): what is left is the point
}

TEST(MappedFileTest, WhatIsNoFileIsRefused) {
  EXPECT_EQ(MappedFile::Open("/nonexistent/file").status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(MappedFile::Open(::testing::TempDir()).ok());
}

}  // namespace
}  // namespace hadal
