#include "pipeline/stage/graph_cache.h"

#include "gtest/gtest.h"
#include "kernels/add.h"
#include "runtime/arena.h"
#include "tests/support/emulated_device.h"

namespace hadal::testing {
namespace {

// x += 1 as two launches, in graphs of a cache.
class GraphCacheTest : public ::testing::Test {
 protected:
  explicit GraphCacheTest(int64_t device_bytes = int64_t{1} << 34) : device_(/*seed=*/1, device_bytes) {
    ArenaLayout layout;
    const ArenaSlice sum = layout.Reserve<float>("a", 4), half = layout.Reserve<float>("a", 4);
    arena_ = *Arena::Allocate(layout, &device_);
    sum_ = {arena_.Get<float>(sum), 4};
    half_ = {arena_.Get<float>(half), 4};
    const std::vector<float> halves(4, 0.5f);
    stream_.FromHost(half_.data, halves.data(), 16);
  }

  void Run(GraphCache& cache, const GraphKey& key) {
    cache.Run(device_, key, [this](const GraphCache::Cut* recording) {
      ++(recording ? recorded_ : eager_);
      for (int i = 0; i < 2; ++i) Add(stream_, {.sum = sum_, .values = half_});
    });
  }
  float Sum() {
    std::vector<float> values(4);
    stream_.ToHost(values.data(), sum_.data, 16);
    return values[3];
  }

  EmulatedDevice device_;
  Stream stream_ = Stream::On(device_, 1);
  Arena arena_;
  Vector sum_, half_;
  int eager_ = 0, recorded_ = 0;
};

TEST_F(GraphCacheTest, FirstEagerlyThenRecordedThenLaunched) {
  GraphCache cache(10);
  const int64_t before = device_.launches();
  Run(cache, {});
  EXPECT_EQ(device_.launches(), before + 2);
  Run(cache, {});
  EXPECT_EQ(device_.launches(), before + 3);
  EXPECT_EQ(Sum(), 2.0f);
  EXPECT_EQ(eager_, 1);
  EXPECT_EQ(recorded_, 1);
  for (int i = 0; i < 5; ++i) Run(cache, {});
  EXPECT_EQ(recorded_, 1);
  EXPECT_EQ(eager_, 1);
  EXPECT_EQ(device_.launches(), before + 8);
  EXPECT_EQ(Sum(), 7.0f);
  EXPECT_EQ(cache.graphs(), 1);
}

TEST_F(GraphCacheTest, EachKeyHasItsOwn) {
  GraphCache cache(10);
  const GraphKey keys[] = {{},
                           {.phase = GraphPhase::kBackward},
                           {.slot = 1},
                           {.shape = {.source_rows = 8}},
                           {.shape = {.target_rows = 8}},
                           {.shape = {.target_tiles = 8}}};
  for (int i = 0; i < 3; ++i) {
    for (const GraphKey& key : keys) Run(cache, key);
  }
  EXPECT_EQ(cache.graphs(), 6);
  EXPECT_EQ(eager_, 6);
  EXPECT_EQ(recorded_, 6);
  EXPECT_EQ(Sum(), 18.0f);
}

// Four launches, cut after the first and the third.
TEST_F(GraphCacheTest, ACutRecordingIsSeveralGraphsWithRoomBetween) {
  GraphCache cache(100);
  const GraphKey key{.phase = GraphPhase::kLastBackward};
  std::vector<float> between;
  const auto run = [&] {
    cache.Run(
        device_, key,
        [&](const GraphCache::Cut* recording) {
          for (int i = 0; i < 4; ++i) {
            Add(stream_, {.sum = sum_, .values = half_});
            if (recording != nullptr && i % 2 == 0) (*recording)(10 - i);
          }
        },
        [&](int32_t mark) {
          between.insert(between.end(), {static_cast<float>(mark), Sum()});
        });
  };
  run();
  EXPECT_TRUE(between.empty()) << "launched one by one";
  run();
  EXPECT_EQ(between, (std::vector<float>{10, 2.5f, 8, 3.5f}));
  EXPECT_EQ(cache.graphs(), 3);
  const int64_t before = device_.launches();
  run();
  EXPECT_EQ(device_.launches(), before + 3);
  EXPECT_EQ(Sum(), 6.0f);
  EXPECT_EQ(between.size(), 8u);
}

TEST_F(GraphCacheTest, WithoutMemoryForAPartItRunsEagerly) {
  GraphCache cache(100);
  device_.RefuseGraphs();
  const GraphKey key{.phase = GraphPhase::kLastBackward};
  for (int i = 0; i < 3; ++i) {
    cache.Run(device_, key, [&](const GraphCache::Cut* recording) {
      Add(stream_, {.sum = sum_, .values = half_});
      if (recording != nullptr) (*recording)(1);
      Add(stream_, {.sum = sum_, .values = half_});
    });
  }
  EXPECT_EQ(cache.graphs(), 0);
  EXPECT_EQ(Sum(), 3.0f);
}

TEST_F(GraphCacheTest, MoreThanMostRunEagerly) {
  GraphCache cache(1);
  for (int i = 0; i < 3; ++i) {
    for (const int32_t slot : {0, 1}) Run(cache, {.slot = slot});
  }
  EXPECT_EQ(cache.graphs(), 1);
  EXPECT_EQ(recorded_, 1);
  EXPECT_EQ(eager_, 4);
  EXPECT_EQ(Sum(), 6.0f);
}

class FullDeviceTest : public GraphCacheTest {
 protected:
  FullDeviceTest() : GraphCacheTest(GraphCache::kKeepFreeBytes) {}
};

TEST_F(FullDeviceTest, KeepsTheMemoryOfModulesFree) {
  GraphCache cache(10);
  for (int i = 0; i < 3; ++i) Run(cache, {});
  EXPECT_EQ(cache.graphs(), 0);
  EXPECT_EQ(recorded_, 0);
  EXPECT_EQ(Sum(), 3.0f);
}

TEST_F(GraphCacheTest, WithoutMemoryItRunsEagerly) {
  GraphCache cache(10);
  device_.RefuseGraphs();
  for (int i = 0; i < 4; ++i) Run(cache, {});
  EXPECT_EQ(cache.graphs(), 0);
  EXPECT_EQ(recorded_, 1) << "asked once";
  EXPECT_EQ(eager_, 4);
  EXPECT_EQ(Sum(), 4.0f);
}

}  // namespace
}  // namespace hadal::testing
