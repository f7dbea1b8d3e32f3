#include <gmock/gmock.h>

#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/mapped_file.h"
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

}  // namespace

}  // namespace hadal
