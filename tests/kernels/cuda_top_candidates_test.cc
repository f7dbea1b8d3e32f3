#include "kernels/cuda/operations.h"

#include <type_traits>

#include "gtest/gtest.h"
#include "kernels/cuda/column_merge.h"
#include "kernels/rotary.h"
#include "tests/support/kernel_device.h"
#include "tests/support/random_inputs.h"
#include "tests/support/top_candidates_reference.h"

namespace hadal {
namespace {

using testing::DeviceMatrixOf;
using testing::DeviceVectorOf;
using testing::ExpectTopCandidates;
using testing::KernelDevice;
using testing::NormalValues;
using testing::Rounded;

TEST(CudaTopCandidatesTest, EqualsSorting) {
  ExpectTopCandidates([](const std::vector<float>& logits, int64_t rows, int64_t count, int32_t also) {
    KernelDevice device(/*seed=*/1);
    const DeviceMatrixOf<float> z(device, logits, rows, std::ssize(logits) / rows, {1, 2}),
        values(device, std::vector<float>(rows * count), rows, count, {});
    const DeviceVectorOf<int32_t> tokens(device, rows * count), best(device, rows);
    const DeviceVectorOf<float> also_values(device, rows);
    cuda::TopCandidates(device.stream(), {.logits = z.view(),
                                          .also = also,
                                          .tokens = {tokens.data(), rows, count},
                                          .values = values.view(),
                                          .also_values = also_values.view(),
                                          .best = best.view()});
    return testing::TopCandidatesResults{tokens.Read(), best.Read(), values.dense(), also_values.Read()};
  });
}

template <typename T>
class CudaScatterRowsTest : public ::testing::Test {};
using StoredTypes = ::testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(CudaScatterRowsTest, StoredTypes);

TYPED_TEST(CudaScatterRowsTest, RowsGoWhereTheyAreSent) {
  using T = TypeParam;
  for (const int64_t width : {1, 7, 300}) {
    KernelDevice device(/*seed=*/1);
    const std::vector<int32_t> index = {4, 0, 7};
    const std::vector<float> x = Rounded<T>(NormalValues(3 * width, 1));
    const std::vector<float> before = Rounded<T>(NormalValues(8 * width, 2));
    DeviceMatrixOf<T> from(device, x, 3, width, {1, 3}), to(device, before, 8, width, {2, 1});
    DeviceVectorOf<int32_t> places(device, index);
    cuda::ScatterRows(device.stream(), {.x = from.view(), .device_index = places.data(), .y = to.view()});
    std::vector<float> expected = before;
    for (int64_t i = 0; i < 3; ++i) std::copy_n(&x[i * width], width, &expected[index[i] * width]);
    EXPECT_EQ(to.dense(), expected);
    EXPECT_TRUE(to.guards_intact());
  }
}

// Heads of five columns, of which four turn; three heads of keys, then values.
TYPED_TEST(CudaScatterRowsTest, KeysTurnOnTheirWay) {
  using T = TypeParam;
  constexpr int64_t kWidth = 20;
  KernelDevice device(/*seed=*/1);
  const std::vector<int32_t> index = {4, 0, 7}, positions = {0, 3, 2};
  const std::vector<float> x = Rounded<T>(NormalValues(3 * kWidth, 1));
  std::vector<float> angles(4 * 4), expected(8 * kWidth, 0.0f);
  FillRotaryTable(100, {angles.data(), 4, 4});
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t c = 0; c < kWidth; ++c) {
      const float* const head = &x[i * kWidth + c / 5 * 5];
      const float* const row = &angles[positions[i] * 4];
      const int64_t pair = c % 5 % 2;
      float y = x[i * kWidth + c];
      if (c < 15 && c % 5 < 2) y = y * row[pair] - head[pair + 2] * row[2 + pair];
      if (c < 15 && c % 5 >= 2 && c % 5 < 4) y = y * row[pair] + head[pair] * row[2 + pair];
      expected[index[i] * kWidth + c] = y;
    }
  }
  DeviceMatrixOf<T> from(device, x, 3, kWidth, {1, 3}), to(device, std::vector<float>(8 * kWidth), 8, kWidth, {2, 1});
  const DeviceMatrixOf<float> table(device, angles, 4, 4, {});
  const DeviceVectorOf<int32_t> places(device, index), at(device, positions);
  cuda::ScatterRows(device.stream(), {.x = from.view(),
                                      .device_index = places.data(),
                                      .y = to.view(),
                                      .rotary = {ConstMatrix(table.view())},
                                      .turned_columns = 15,
                                      .head_width = 5,
                                      .device_positions = at.data()});
  EXPECT_TRUE(testing::NearReference(to.dense(), {expected.begin(), expected.end()}, 1, 4,
                                     std::is_same_v<T, float> ? 0 : testing::kBFloat16Roundoff));
}

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
