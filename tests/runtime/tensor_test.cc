#include "runtime/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <limits>
#include <tuple>

#include "gtest/gtest.h"
#include "runtime/tensor.h"

namespace hadal {
namespace {

// Pages of [begin, begin + bytes) that have memory.
int64_t ResidentPages(void* begin, int64_t bytes) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  std::vector<unsigned char> resident((bytes + page - 1) / page);
  EXPECT_EQ(mincore(begin, static_cast<size_t>(bytes), resident.data()), 0);
  return std::count_if(resident.begin(), resident.end(), [](unsigned char flags) { return flags & 1; });
}

class ArenaTest : public testing::Test {
 protected:
  ArenaTest() : slice_(layout_.ReserveBytes("weights", kBytes)), arena_(*Arena::Allocate(layout_)) {}

  static constexpr int64_t kBytes = (int64_t{24} << 20) + 4096 + 64;

  ArenaLayout layout_;
  const ArenaSlice slice_;
  Arena arena_;
};

TEST_F(ArenaTest, TakesMemoryWhenItIsToldToAndNotBefore) {
  std::byte* const base = arena_.Get<std::byte>(slice_);
  EXPECT_LT(ResidentPages(base, kBytes), kBytes / 4096 / 2);
  ASSERT_TRUE(arena_.MakeResident(Stream::Cpu(1)).ok());
  EXPECT_EQ(ResidentPages(base, kBytes), (kBytes + sysconf(_SC_PAGESIZE) - 1) / sysconf(_SC_PAGESIZE));
}

TEST_F(ArenaTest, ThreadsShareTheWorkAndContentsStay) {
  int64_t* const numbers = arena_.Get<int64_t>(slice_);
  numbers[0] = 17;
  numbers[kBytes / 8 - 1] = 19;
  ASSERT_TRUE(arena_.MakeResident(Stream::Cpu(3)).ok());
  EXPECT_EQ(ResidentPages(numbers, kBytes), (kBytes + sysconf(_SC_PAGESIZE) - 1) / sysconf(_SC_PAGESIZE));
  EXPECT_EQ(numbers[0], 17);
  EXPECT_EQ(numbers[1], 0);
  EXPECT_EQ(numbers[kBytes / 8 - 1], 19);
}

#ifdef MADV_POPULATE_WRITE
TEST_F(ArenaTest, MemoryThatIsNotThereIsAnErrorWithItsSize) {
  const Stream stream = Stream::Cpu(3);
  std::byte* const base = arena_.Get<std::byte>(slice_);
  if (madvise(base, 4096, MADV_POPULATE_WRITE) != 0) GTEST_SKIP() << "Linux before 5.14 ends the process instead";
  ASSERT_EQ(munmap(base + (int64_t{8} << 20), 4096), 0);
  const absl::Status status = arena_.MakeResident(stream);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_NE(status.message().find("the 25169984 bytes of the arena"), std::string::npos) << status;
}
#endif

TEST(Arena, GapsLieBehindRegions) {
  ArenaLayout layout(DeviceKind::kCpu, 128);
  const ArenaSlice first = layout.Reserve<float>("a", 10), second = layout.Reserve<float>("a", 1);
  EXPECT_EQ(second.offset, first.offset + 64 + 128);
  ASSERT_EQ(layout.gaps().size(), 2u);
  EXPECT_EQ(layout.gaps()[0].slice.offset, first.offset + 64);
  EXPECT_EQ(layout.gaps()[1].slice.offset, second.offset + 64);
  EXPECT_EQ(layout.gaps()[1].slice.bytes, 128);
  EXPECT_EQ(layout.device_bytes(), 2 * (64 + 128));
}

// Lasting regions between scratch, in both parts; the second program needs more of the device and less of the host.
TEST(Arena, ScratchOfProgramsLiesOverEachOtherAndWhatLastsApart) {
  ArenaLayout layout;
  const ArenaSlice first = layout.Reserve<float>("workspace", 32), first_host = layout.ReserveHostBytes("borders", 640);
  const ArenaSlice weights = layout.ReserveLasting<float>("weights", 100);  // 448 bytes, padded
  const ArenaSlice buffer = layout.ReserveLastingHostBytes("buffer", 64);
  EXPECT_EQ(layout.overlaid_bytes(), 0);
  layout.BeginProgram();
  const ArenaSlice table = layout.ReserveLasting<float>("weights", 16);
  const ArenaSlice second = layout.ReserveBytes("caches", 192), second_host = layout.ReserveHostBytes("borders", 128);
  EXPECT_EQ(layout.device_bytes(), 448 + 64 + 192);
  EXPECT_EQ(layout.host_bytes(), 64 + 640);
  EXPECT_EQ(layout.overlaid_bytes(), 128 + 128);
  int64_t sum = 0;
  for (const ArenaLayout::Category& category : layout.categories()) sum += category.bytes;
  EXPECT_EQ(sum - layout.overlaid_bytes(), layout.total_bytes());
  ASSERT_EQ(layout.categories().size(), 6u) << "borders of each program, weights once";

  const Arena arena = *Arena::Allocate(layout);
  EXPECT_EQ(arena.bytes(), layout.total_bytes());
  EXPECT_EQ(arena.Get<std::byte>(first), arena.Get<std::byte>(second));
  EXPECT_EQ(arena.Get<std::byte>(first_host), arena.Get<std::byte>(second_host));
  EXPECT_EQ(arena.scratch(/*on_host=*/false).size(), 192u);
  EXPECT_EQ(arena.scratch(/*on_host=*/true).size(), 640u);
  for (const bool on_host : {false, true}) std::ranges::fill(arena.scratch(on_host), std::byte{0xFF});
  for (const auto& [slice, value] : {std::pair(weights, 0), {table, 0}, {buffer, 0}, {first, -1}, {first_host, -1}}) {
    const auto* const begin = arena.Get<int8_t>(slice);
    EXPECT_EQ(std::count(begin, begin + slice.bytes, value), slice.bytes);
  }
}

// A category is a name, a part, what lasts or not, and whose program it is; sizes are padded to 64 bytes.
TEST(Arena, CategoriesHoldWhatWasReservedUnderThem) {
  ArenaLayout layout;
  layout.ReserveBytes("workspace", 64);
  layout.ReserveBytes("logits", 128);
  layout.ReserveHostBytes("workspace", 192);
  layout.ReserveBytes("workspace", 1);
  layout.ReserveLasting<float>("workspace", 16);
  layout.BeginProgram();
  layout.ReserveBytes("workspace", 64);
  layout.ReserveBytes("workspace", 64);
  layout.ReserveLasting<float>("workspace", 16);
  layout.BeginProgram();
  layout.ReserveBytes("workspace", 320);
  std::vector<std::tuple<std::string, bool, bool, int, int64_t>> found;
  for (const ArenaLayout::Category& c : layout.categories()) {
    found.emplace_back(c.name, c.section.on_host, c.section.lasting, c.program, c.bytes);
  }
  const std::vector<std::tuple<std::string, bool, bool, int, int64_t>> expected = {
      {"workspace", false, false, 0, 128}, {"logits", false, false, 0, 128},    {"workspace", true, false, 0, 192},
      {"workspace", false, true, 0, 128},  {"workspace", false, false, 1, 128}, {"workspace", false, false, 2, 320}};
  EXPECT_EQ(found, expected);
  EXPECT_EQ(layout.overlaid_bytes(), 2 * 64 + 256);
  EXPECT_EQ(layout.device_bytes(), 128 + 320);
}

TEST(Arena, WhatIsNotThereIsAnErrorWithItsSize) {
  ArenaLayout layout;
  layout.ReserveBytes("weights", int64_t{1} << 50);  // beyond all addresses
  const absl::Status status = Arena::Allocate(layout).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_NE(status.message().find("arena of 1125899906842624 bytes"), std::string::npos) << status;
}

TEST(Arena, GivesItsMemoryBackOnce) {
  ArenaLayout layout;
  const ArenaSlice slice = layout.ReserveBytes("weights", int64_t{1} << 20);
  unsigned char flags = 0;
  void* base = nullptr;
  {
    Arena kept;
    {
      Arena first = *Arena::Allocate(layout);
      base = first.Get<std::byte>(slice);
      kept = std::move(first);
    }
    ASSERT_EQ(mincore(base, 1, &flags), 0) << "moved, not released";
    EXPECT_EQ(kept.Get<std::byte>(slice), base);
  }
  EXPECT_NE(mincore(base, 1, &flags), 0);
  EXPECT_EQ(errno, ENOMEM) << "nothing is mapped there any more";
}

// What one program takes for the host another may take for kernels.
TEST(Arena, OfTheCpuIsOnePart) {
  ArenaLayout layout(DeviceKind::kCpu);
  layout.ReserveBytes("workspace", 128);
  const ArenaSlice borders = layout.ReserveHostBytes("borders", 640);
  layout.BeginProgram();
  const ArenaSlice caches = layout.ReserveBytes("caches", 512);
  EXPECT_EQ(layout.total_bytes(), 128 + 640);
  EXPECT_EQ(layout.overlaid_bytes(), 512);
  const Arena arena = *Arena::Allocate(layout);
  EXPECT_EQ(arena.Get<std::byte>(borders), arena.Get<std::byte>(caches) + 128);
}

TEST(Arena, AnEmptyOneCanBeMadeResident) {
  Arena arena = *Arena::Allocate(ArenaLayout());
  EXPECT_TRUE(arena.MakeResident(Stream::Cpu(2)).ok());
}

TEST(AnyMatrixTest, PartsKeepTheirStorageAndPlace) {
  std::vector<BFloat16> values(5 * 8);
  const AnyMatrix whole(values.data(), 5, 8, Storage::kBFloat16);
  EXPECT_EQ(whole.bytes(), 5 * 8 * 2);
  const ConstAnyMatrix part = whole.Rows(1, 3).Columns(2, 4);
  EXPECT_EQ(part.data, values.data() + 1 * 8 + 2);
  EXPECT_EQ(part.of<BFloat16>().row(1), values.data() + 2 * 8 + 2);
  EXPECT_EQ(part.rows, 3);
  EXPECT_EQ(part.columns, 4);
  EXPECT_EQ(part.stride, 8);
}

TEST(AnyMatrixTest, TypedViewsSayTheirStorage) {
  std::vector<float> values(6);
  const Matrix floats(values.data(), 2, 3);
  const ConstAnyMatrix any = floats;
  EXPECT_EQ(any.storage, Storage::kFloat32);
  EXPECT_EQ(any.floats().data, values.data());
  EXPECT_EQ(ConstAnyVector(Vector(values.data(), 6)).floats().size, 6);
  EXPECT_TRUE(AnyMatrix().of<BFloat16>().empty()) << "not given passes as anything";
}

TEST(AnyMatrixDeathTest, AnotherStorageIsABug) {
  std::vector<BFloat16> values(6);
  const AnyMatrix matrix(values.data(), 2, 3, Storage::kBFloat16);
  EXPECT_DEATH(matrix.floats(), "storage");
  EXPECT_DEATH(matrix.Columns(0, 2).bytes(), "stride");
  const ConstAnyVector vector = VectorOf<BFloat16>(values.data(), 6);
  EXPECT_DEATH(vector.floats(), "storage");
}

TEST(BFloat16Test, EveryOneSurvivesAndNaNsStayNaN) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const BFloat16 x{static_cast<uint16_t>(bits)};
    if (std::isnan(Widened(x))) {
      EXPECT_EQ(RoundedToBFloat16(Widened(x)).bits, 0x7FFF);
    } else {
      ASSERT_EQ(RoundedToBFloat16(Widened(x)).bits, x.bits);
    }
  }
  EXPECT_EQ(RoundedToBFloat16(1.0f + 0x1p-8f).bits, 0x3F80) << "halfway, to the even one";
  EXPECT_EQ(RoundedToBFloat16(1.0f + 3 * 0x1p-8f).bits, 0x3F82);
  EXPECT_TRUE(std::isinf(Widened(RoundedToBFloat16(std::numeric_limits<float>::max()))));
}

}  // namespace
}  // namespace hadal
