#include "kernels/cuda/column_merge.h"

#include <cmath>

#include "gtest/gtest.h"
#include "tests/support/kernel_device.h"
#include "tests/support/random_inputs.h"

namespace hadal {
namespace {

using testing::DeviceVectorOf;
using testing::KernelDevice;
using testing::NormalValues;

struct Case {
  int64_t count, width, stride;
};
// One run of parts, ragged runs, runs of more than eight parts.
const Case kCases[] = {{1, 1, 1}, {8, 33, 40}, {9, 64, 64}, {31, 5, 7}, {256, 32, 96}, {300, 70, 70}};
constexpr int kMerges = cuda::kMostMerges + 6;  // two launches

// The sums of kMerges merges, of which two add to one destination: launched together or one by one.
std::vector<float> Merged(bool together, uint64_t seed) {
  KernelDevice device(seed);
  std::vector<float> parts, sums;
  std::vector<ColumnMerge> merges;
  int64_t first_part = 0, first_sum = 0;
  for (int i = 0; i < kMerges; ++i) {
    const Case& c = kCases[i % std::size(kCases)];
    merges.push_back({.count = c.count, .stride = c.stride, .width = c.width});
    const std::vector<float> more = NormalValues(c.count * c.stride, 100 + i), before = NormalValues(c.width, 200 + i);
    parts.insert(parts.end(), more.begin(), more.end());
    sums.insert(sums.end(), before.begin(), before.end());
  }
  const DeviceVectorOf<float> on_device(device, parts), results(device, sums);
  for (ColumnMerge& merge : merges) {
    merge.parts = on_device.data() + first_part, merge.sums = results.data() + first_sum;
    first_part += merge.count * merge.stride, first_sum += merge.width;
  }
  merges[12].sums = merges[0].sums;
  if (together) {
    cuda::MergeColumns(device.stream(), merges);
  } else {
    for (const ColumnMerge& merge : merges) cuda::MergeColumns(device.stream(), {&merge, 1});
  }
  return results.Read();
}

TEST(CudaColumnMergeTest, TogetherTheBitsAreThoseOfEachAlone) {
  const std::vector<float> alone = Merged(false, 1);
  EXPECT_EQ(Merged(true, 1), alone);
  EXPECT_EQ(Merged(true, 2), alone) << "another order of threads changes bits";
}

TEST(CudaColumnMergeTest, EveryPartIsAddedOnce) {
  for (const Case& c : kCases) {
    KernelDevice device(/*seed=*/1);
    const std::vector<float> parts = NormalValues(c.count * c.stride, 1), before = NormalValues(c.width, 2);
    const DeviceVectorOf<float> on_device(device, parts), sums(device, before);
    const ColumnMerge merge = {
        .parts = on_device.data(), .count = c.count, .stride = c.stride, .width = c.width, .sums = sums.data()};
    cuda::MergeColumns(device.stream(), {&merge, 1});
    const std::vector<float> results = sums.Read();
    for (int64_t j = 0; j < c.width; ++j) {
      double sum = before[j], size = std::abs(before[j]);
      for (int64_t i = 0; i < c.count; ++i) sum += parts[i * c.stride + j], size += std::abs(parts[i * c.stride + j]);
      ASSERT_NEAR(results[j], sum, 1e-6 * size) << "column " << j << " of " << c.count << " parts";
    }
  }
}

}  // namespace
}  // namespace hadal
