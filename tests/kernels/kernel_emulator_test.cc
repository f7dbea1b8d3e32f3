// The emulator catches what it promises to catch: each kernel here is one that CUDA might run without a word.
#include "tests/support/kernel_emulator.h"

#include <set>

#include "gtest/gtest.h"
#include "kernels/cuda/fragment.h"
#include "kernels/cuda/thread_layer.h"
#include "tests/support/access_counter.h"

namespace hadal::cuda {
namespace {

constexpr int kThreads = 64;

// Where a test kernel goes wrong.
enum class Fault { kNone, kNoBarrier, kDivergentBarrier, kEarlyReturn, kDivergentShuffle, kBarrierAgainstShuffle };

// out[block][thread] = in[block][the thread's mirror image], through shared memory.
HADAL_KERNEL void MirrorKernel(DevicePointer<const float> in, DevicePointer<float> out, Fault fault) {
  HADAL_SHARED(float, values, kThreads);
  const int thread = ThreadIndex();
  const int64_t first = BlockX() * kThreads;
  if (fault == Fault::kEarlyReturn && thread == 5) return;
  values[thread] = Load(in + first + thread);
  if (fault == Fault::kDivergentBarrier) {
    if (thread < 32) {
      Barrier();
    } else {
      Barrier();
    }
  } else if (fault != Fault::kNoBarrier) {
    Barrier();
  }
  Store(out + first + thread, values[kThreads - 1 - thread]);
}

// Sums over the first warp.
HADAL_KERNEL void SumKernel(DevicePointer<const float> in, DevicePointer<float> out, Fault fault) {
  float x = Load(in + ThreadIndex());
  if (fault == Fault::kBarrierAgainstShuffle && ThreadIndex() == 0) Barrier();
  for (int mask = 16; mask > 0; mask /= 2) {
    if (fault == Fault::kDivergentShuffle && ThreadIndex() == 7 && mask == 2) {
      x += ShuffleXor(x, 2);
    } else {
      x += ShuffleXor(x, mask);
    }
  }
  Store(out + ThreadIndex(), x);
}

std::vector<float> RunMirror(uint64_t seed, Fault fault, int64_t blocks = 3) {
  KernelEmulator emulator(seed);
  const int64_t count = blocks * kThreads;
  auto* in = static_cast<float*>(emulator.Allocate(count * sizeof(float)));
  auto* out = static_cast<float*>(emulator.Allocate(count * sizeof(float)));
  for (int64_t i = 0; i < count; ++i) in[i] = static_cast<float>(i);
  Launch(emulator.stream(), {.blocks_x = blocks, .threads = kThreads}, MirrorKernel, in, out, fault);
  return {out, out + count};
}

void RunSum(Fault fault) {
  KernelEmulator emulator(1);
  auto* in = static_cast<float*>(emulator.Allocate(32 * sizeof(float)));
  auto* out = static_cast<float*>(emulator.Allocate(32 * sizeof(float)));
  for (int i = 0; i < 32; ++i) in[i] = static_cast<float>(i);
  Launch(emulator.stream(), {.threads = 32}, SumKernel, in, out, fault);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(out[i], 31 * 16);
}

TEST(KernelEmulatorTest, RunsEveryThreadOfEveryBlock) {
  const std::vector<float> out = RunMirror(1, Fault::kNone);
  for (int64_t i = 0; i < static_cast<int64_t>(out.size()); ++i) {
    EXPECT_EQ(out[i], i / kThreads * kThreads + kThreads - 1 - i % kThreads);
  }
}

TEST(KernelEmulatorTest, ShufflesWithinTheWarp) { RunSum(Fault::kNone); }

TEST(KernelEmulatorTest, TwoDimensionsOfBlocks) {
  KernelEmulator emulator(3);
  std::set<std::pair<int64_t, int64_t>> seen;
  emulator.Run({.blocks_x = 3, .blocks_y = 2, .threads = 32}, [&] {
    seen.insert({BlockX(), BlockY()});
    EXPECT_EQ(BlocksX(), 3);
    EXPECT_EQ(ThreadsInBlock(), 32);
  });
  EXPECT_EQ(seen.size(), 6);
  EXPECT_EQ(*seen.rbegin(), std::pair(int64_t{2}, int64_t{1}));
}

TEST(KernelEmulatorTest, BlocksAndThreadsComeInRandomOrder) {
  const auto order = [](uint64_t seed) {
    KernelEmulator emulator(seed);
    std::vector<int64_t> seen;
    emulator.Run({.blocks_x = 4, .threads = 32}, [&] { seen.push_back(BlockX() * 32 + ThreadIndex()); });
    return seen;
  };
  EXPECT_EQ(order(1), order(1));
  EXPECT_NE(order(1), order(2));
}

// Runs `body` as the threads of a block of two warps, with an array in shared memory.
void RunShared(const std::function<void(Shared<float>)>& body) {
  KernelEmulator emulator(1);
  emulator.Run({.threads = kThreads}, [&] {
    HADAL_SHARED(float, values, kThreads);
    body(values);
  });
}

TEST(KernelEmulatorDeathTest, AMissingBarrierIsARace) {
  EXPECT_DEATH(
      RunMirror(1, Fault::kNoBarrier),
      "thread [0-9]+ of block \\([0-2], 0\\) (reads|writes) 4 shared bytes at .*kernel_emulator_test.cc:[0-9]+ in a "
      "race with thread [0-9]+ at .*kernel_emulator_test.cc:[0-9]+");
}

TEST(KernelEmulatorDeathTest, AStoreAfterAnothersLoadIsARace) {
  const auto turned = [](bool barrier) {
    RunShared([barrier](Shared<float> values) {
      values[ThreadIndex()] = 0.0f;
      Barrier();
      const float other = values[kThreads - 1 - ThreadIndex()];
      if (barrier) Barrier();
      values[ThreadIndex()] = other;
    });
  };
  turned(true);
  EXPECT_DEATH(turned(false), "shared bytes at .* in a race with");
}

TEST(KernelEmulatorDeathTest, TwoStoresOfOneValueAreARace) {
  const auto store = [](bool by_one) {
    RunShared([by_one](Shared<float> values) {
      if (!by_one || ThreadIndex() == 0) values[0] = 1.0f;
    });
  };
  store(true);
  EXPECT_DEATH(store(false), "writes 4 shared bytes at .* in a race with");
}

// Every access of a warp may be delayed beyond a shuffle.
TEST(KernelEmulatorDeathTest, AShuffleOrdersNoAccesses) {
  const auto exchange = [](bool barrier) {
    RunShared([barrier](Shared<float> values) {
      const int lane = ThreadIndex() % kWarp, other = ThreadIndex() ^ 1;
      values[ThreadIndex()] = ShuffleXor(1.0f, 1);
      ShuffleFrom(lane, 0);
      if (barrier) Barrier();
      EXPECT_EQ(static_cast<float>(values[other]), 1.0f);
    });
  };
  exchange(true);
  EXPECT_DEATH(exchange(false), "shared bytes at .* in a race with");
}

// Parts of sixteen bytes, and the rows of matrices.
TEST(KernelEmulatorDeathTest, RacesAreFoundByWords) {
  const auto words = [](int moved) {
    KernelEmulator emulator(1);
    emulator.Run({.threads = kWarp}, [moved] {
      HADAL_SHARED(Vector16, rows, kWarp + 1);
      rows[ThreadIndex()] = Vector16{};
      Barrier();
      StoreWord(rows + (ThreadIndex() / 4 + moved), ThreadIndex() % 4, 0);
      LoadMatrices(rows + (kWarp / 4 + ThreadIndex() % (kWarp - kWarp / 4)));
    });
  };
  words(0);
  EXPECT_DEATH(words(1), "(reads 16|writes 4) shared bytes at .* in a race with");
}

TEST(KernelEmulatorTest, MemoryStartsAsNotANumber) {
  KernelEmulator emulator(1);
  const auto* values = static_cast<const float*>(emulator.Allocate(5 * sizeof(float)));
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(std::isnan(values[i]));
}

TEST(KernelEmulatorDeathTest, DivergentBarrier) {
  EXPECT_DEATH(RunMirror(1, Fault::kDivergentBarrier),
               "do not reach the same place:(.|\n)*thread 0 waits at a barrier, .*\\(32 like it");
}

TEST(KernelEmulatorDeathTest, ReturnBeforeABarrier) {
  EXPECT_DEATH(RunMirror(1, Fault::kEarlyReturn), "waits at a barrier.*63 like it(.|\n)*thread 5 has returned");
}

TEST(KernelEmulatorDeathTest, DivergentShuffle) {
  EXPECT_DEATH(RunSum(Fault::kDivergentShuffle), "do not reach the same place:(.|\n)*thread 7 waits at a shuffle");
}

TEST(KernelEmulatorDeathTest, BarrierAgainstShuffle) {
  EXPECT_DEATH(RunSum(Fault::kBarrierAgainstShuffle), "thread 0 waits at a barrier(.|\n)*thread 1 waits at a shuffle");
}

// Reads or writes `bytes` wide at `offset` of an allocation of 100 bytes.
void Access(int64_t offset, bool vector, bool write) {
  KernelEmulator emulator(1);
  auto* start = static_cast<char*>(emulator.Allocate(100));
  emulator.Allocate(100);  // a neighbour is no excuse
  emulator.Run({.threads = 32}, [&] {
    const DevicePointer<float> at = reinterpret_cast<float*>(start + offset);
    if (vector && write) StoreVector(at, {});
    if (vector && !write) LoadVector(at);
    if (!vector && write) Store(at, 1.0f);
    if (!vector && !write) Load(at);
  });
}

TEST(KernelEmulatorTest, AccessWithinBounds) {
  for (const bool write : {false, true}) {
    Access(0, false, write);
    Access(96, false, write);
    Access(80, true, write);
  }
}

TEST(KernelEmulatorDeathTest, AccessOutOfBounds) {
  EXPECT_DEATH(Access(100, false, false),
               "thread [0-9]+ of block \\(0, 0\\) reads 4 bytes at offset 100 of an allocation of 100");
  EXPECT_DEATH(Access(100, false, true), "writes 4 bytes at offset 100");
  EXPECT_DEATH(Access(96, true, false), "reads 16 bytes at offset 96 of an allocation of 100");
  EXPECT_DEATH(Access(-4, false, true), "writes 4 bytes");
}

TEST(KernelEmulatorDeathTest, MisalignedAccess) {
  EXPECT_DEATH(Access(8, true, false), "reads 16 bytes at offset 8, which is not aligned to 16");
  EXPECT_DEATH(Access(2, false, true), "writes 4 bytes at offset 2, which is not aligned to 4");
}

TEST(KernelEmulatorDeathTest, SharedArrayOutOfBounds) {
  KernelEmulator emulator(1);
  const auto touch = [&](int64_t index) {
    emulator.Run({.threads = 32}, [&] {
      HADAL_SHARED(float, values, 10);
      static_cast<float>(values[index]);
    });
  };
  touch(9);
  EXPECT_DEATH(touch(10), "accesses element 10 of a shared array of 10");
  EXPECT_DEATH(touch(-1), "accesses element -1 of a shared array of 10");
}

TEST(KernelEmulatorDeathTest, BlocksAreWholeWarps) {
  KernelEmulator emulator(1);
  EXPECT_DEATH(emulator.Run({.threads = 48}, [] {}), "16 vs. 0");
}

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
