#include "runtime/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

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

  static constexpr int64_t kBytes = (int64_t{24} << 20) + 4096;

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

}  // namespace
}  // namespace hadal
