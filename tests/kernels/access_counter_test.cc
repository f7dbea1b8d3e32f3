#include "tests/support/access_counter.h"

#include <cstdint>
#include <functional>

#include "gtest/gtest.h"
#include "kernels/cuda/fragment.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {
namespace {

LaunchCounts CountWarps(int warps, const std::function<void(DevicePointer<float>)>& body) {
  KernelEmulator emulator(/*seed=*/1);
  const DevicePointer<float> memory = static_cast<float*>(emulator.Allocate(64 << 10));
  AccessCounter counter;
  emulator.CountAccesses(&counter);
  emulator.Run({.threads = warps * kWarp}, [&] { body(memory); });
  EXPECT_EQ(counter.launches().size(), 1);
  return counter.launches().back();
}

AccessCount SharedOf(const std::function<void()>& body) {
  return CountWarps(1, [&](DevicePointer<float>) { body(); }).shared;
}

void ExpectCount(const AccessCount& count, int64_t instructions, int64_t units, int64_t least) {
  EXPECT_EQ(count.instructions, instructions);
  EXPECT_EQ(count.units, units);
  EXPECT_EQ(count.least, least);
}

// A warp's stores of Ts that lie `stride` apart.
template <typename T>
AccessCount Strided(int stride) {
  return SharedOf([stride] {
    HADAL_SHARED(T, values, 33 * kWarp);
    values[stride * ThreadIndex()] = T{};
  });
}

TEST(AccessCounterTest, WordsOfOneBankTakeTurns) {
  for (const int stride : {1, 2, 8, 32}) ExpectCount(Strided<float>(stride), 1, stride, 1);
  ExpectCount(Strided<float>(33), 1, 1, 1);
}

TEST(AccessCounterTest, OneWordForAllIsOneWavefront) {
  ExpectCount(SharedOf([] {
                HADAL_SHARED(float, values, 1);
                static_cast<float>(values[0]);
              }),
              1, 1, 1);
}

TEST(AccessCounterTest, EightBytesGoByHalfWarpsAndSixteenByQuarters) {
  ExpectCount(Strided<double>(1), 1, 2, 2);
  ExpectCount(Strided<double>(2), 1, 4, 2);
  ExpectCount(Strided<Vector16>(1), 1, 4, 4);
  ExpectCount(Strided<Vector16>(2), 1, 8, 4);
  ExpectCount(Strided<Vector16>(3), 1, 4, 4);
}

// Eight rows 128 bytes apart lie in the same banks; where each is turned by its number they do not.
TEST(AccessCounterTest, RowsOfMatricesGoEightAtATime) {
  const auto of = [](bool turned) {
    return SharedOf([turned] {
      HADAL_SHARED(Vector16, tile, 8 * kWarp);
      const int row = ThreadIndex();
      tile[8 * row + (turned ? row % 8 : 0)] = Vector16{};
      Barrier();
      LoadMatrices(tile + (8 * row + (turned ? row % 8 : 0)));
    });
  };
  ExpectCount(of(false), 2, 2 * 32, 2 * 4);
  ExpectCount(of(true), 2, 2 * 4, 2 * 4);
}

TEST(AccessCounterTest, AWordOfSixteenBytesIsFour) {
  ExpectCount(SharedOf([] {
                HADAL_SHARED(Vector16, tile, 8);
                StoreWord(tile + ThreadIndex() / 4, ThreadIndex() % 4, 0);
              }),
              1, 1, 1);
}

TEST(AccessCounterTest, SectorsThatAWarpTouches) {
  const auto of = [](int64_t first, int64_t stride) {
    return CountWarps(1, [=](DevicePointer<float> memory) { Store(memory + first + stride * ThreadIndex(), 0.0f); })
        .stores;
  };
  ExpectCount(of(0, 1), 1, 4, 4);
  ExpectCount(of(1, 1), 1, 5, 4);
  ExpectCount(of(0, 2), 1, 8, 4);
  ExpectCount(of(0, 64), 1, 32, 4);
  ExpectCount(of(0, 0), 1, 1, 1);
}

// Two accesses that fill half of each sector.
TEST(AccessCounterTest, HalvesOfSectorsCountTwice) {
  const LaunchCounts counts = CountWarps(1, [](DevicePointer<float> memory) {
    StoreVector(memory + 8 * ThreadIndex(), Vector16{});
    StoreVector(memory + 8 * ThreadIndex() + 4, Vector16{});
  });
  ExpectCount(counts.stores, 2, 64, 32);
  ExpectCount(counts.loads, 0, 0, 0);
}

TEST(AccessCounterTest, WarpsCountForThemselves) {
  const LaunchCounts counts = CountWarps(3, [](DevicePointer<float> memory) { Store(memory + ThreadIndex(), 0.0f); });
  ExpectCount(counts.stores, 3, 12, 12);
}

// Lanes that skip an access meet the others at the next one.
TEST(AccessCounterTest, LanesThatPartMeetAgain) {
  const LaunchCounts counts = CountWarps(1, [](DevicePointer<float> memory) {
    if (ThreadIndex() < 8) Store(memory + ThreadIndex(), 0.0f);
    Store(memory + 32 + ThreadIndex(), 0.0f);
    for (int i = 0; i < ThreadIndex() / 16; ++i) Store(memory + 64 + ThreadIndex(), 0.0f);
    Store(memory + 96 + ThreadIndex(), 0.0f);
  });
  ExpectCount(counts.stores, 4, 1 + 4 + 2 + 4, 1 + 4 + 2 + 4);
}

TEST(AccessCounterTest, AMeetingOrdersAccesses) {
  const LaunchCounts counts = CountWarps(1, [](DevicePointer<float> memory) {
    for (int i = 0; i < 2; ++i) {
      if (ThreadIndex() / 16 == i) Store(memory + ThreadIndex() % 16, 0.0f);
      Barrier();
    }
  });
  ExpectCount(counts.stores, 2, 4, 4);
}

TEST(AccessCounterTest, NobodyCountsUnlessAsked) {
  KernelEmulator emulator(/*seed=*/1);
  const DevicePointer<float> memory = static_cast<float*>(emulator.Allocate(256));
  AccessCounter counter;
  emulator.CountAccesses(&counter);
  emulator.CountAccesses(nullptr);
  emulator.Run({.threads = kWarp}, [&] { Store(memory + ThreadIndex(), 0.0f); });
  EXPECT_TRUE(counter.launches().empty());
}

}  // namespace
}  // namespace hadal::cuda
