#include "runtime/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
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

TEST(Arena, AnEmptyOneCanBeMadeResident) {
  Arena arena = *Arena::Allocate(ArenaLayout());
  EXPECT_TRUE(arena.MakeResident(Stream::Cpu(2)).ok());
}

}  // namespace
}  // namespace hadal
