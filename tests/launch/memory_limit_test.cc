#include "launch/memory_limit.h"

#include "gmock/gmock.h"
#include "kernels/cuda_host/driver_memory.h"
#include "kernels/cuda_host/own_memory.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kGib = int64_t{1} << 30;
constexpr int64_t kOwn = cuda::OwnMemory::kDeviceBytes;

TEST(MemoryLimit, RanksOfAHostShareWhatItHasFree) {
  const std::vector<MemoryFacts> ranks = {{"", 8 * kGib, 2}, {"", 7 * kGib, 2}, {"", 20 * kGib, 4}};
  EXPECT_EQ(MemoryLimitBytes(ranks, 0), 7 * kGib / 2);
  EXPECT_EQ(MemoryLimitBytes(std::vector<MemoryFacts>{{"", MemoryFacts::kUnknown, 1}}, 0), MemoryFacts::kUnknown);
}

TEST(MemoryLimit, AGpuOfOnesOwnIsWhatItHasFreeLessTheDriversAndWithWhatIsTaken) {
  const std::vector<MemoryFacts> ranks = {{"GPU-a", 80 * kGib, 2}, {"GPU-b", 70 * kGib, 2}};
  EXPECT_EQ(MemoryLimitBytes(ranks, 3 * kGib), 67 * kGib + kOwn);
}

TEST(MemoryLimit, RanksThatShareAGpuShareItsMemory) {
  const std::vector<MemoryFacts> ranks = {{"GPU-a", 40 * kGib, 4}, {"GPU-b", 30 * kGib, 4}, {"GPU-a", 42 * kGib, 4}};
  EXPECT_EQ(MemoryLimitBytes(ranks, 2 * kGib), 18 * kGib + kOwn) << "the least that one of the two has seen, halved";
  const std::vector<MemoryFacts> four(4, {"GPU-a", 40 * kGib, 4});
  EXPECT_EQ(MemoryLimitBytes(four, 2 * kGib), 8 * kGib + kOwn);
}

// Zero would be no limit at all.
TEST(MemoryLimit, IsNeverZero) {
  EXPECT_EQ(MemoryLimitBytes(std::vector<MemoryFacts>{{"GPU-a", kGib, 1}}, 2 * kGib), 1);
  EXPECT_EQ(MemoryLimitBytes(std::vector<MemoryFacts>{{"", 0, 1}}, 0), 1);
}

TEST(MemoryLimit, SaysWhenAGpuHasNothingLeftForARank) {
  const std::vector<MemoryFacts> many(12, {"GPU-a", 16 * kGib, 12});
  EXPECT_THAT(NothingIsLeft(many, 2 * kGib),
              AllOf(HasSubstr("GPU-a"), HasSubstr("16384 MiB"), HasSubstr("12 rank(s)"), HasSubstr("2048 MiB")));
  const std::vector<MemoryFacts> few(7, {"GPU-a", 16 * kGib, 7});
  EXPECT_EQ(NothingIsLeft(few, 2 * kGib), "");
  EXPECT_NE(NothingIsLeft(std::vector<MemoryFacts>{{"GPU-a", kGib, 1}}, kGib + kOwn), "") << "zero is no limit";
  EXPECT_EQ(NothingIsLeft(std::vector<MemoryFacts>{{"", 0, 1}}, 0), "") << "a host's own business";
}

TEST(MemoryLimit, SaysWhenNcclTookMoreThanWasLeft) {
  const int64_t left = cuda::DriverMemory::NcclBytes(4);
  EXPECT_EQ(left, cuda::DriverMemory::kNcclBytes + 4 * cuda::DriverMemory::kNcclConnectionBytes);
  EXPECT_EQ(NcclTookMore(left, 4, 1), "");
  EXPECT_THAT(NcclTookMore(left + (100 << 20), 4, 1),
              AllOf(HasSubstr("rank 1"), HasSubstr("548 MiB"), HasSubstr("448 MiB"), HasSubstr("4 connections")));
}

}  // namespace
}  // namespace hadal
