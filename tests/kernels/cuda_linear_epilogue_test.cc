#include "kernels/cuda/linear_epilogue.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "kernels/cuda/operations.h"
#include "tests/support/kernel_device.h"
#include "tests/support/random_inputs.h"

namespace hadal {
namespace {

using testing::DeviceMatrixOf;
using testing::DeviceVectorOf;
using testing::KernelDevice;
using testing::NormalValues;
using testing::Placement;
using testing::Rounded;

struct Case {
  int64_t rows, width;
  Placement place;
};
// Ragged, strided and misaligned, and wide enough for 16-byte accesses.
const Case kCases[] = {{1, 1, {}}, {5, 7, {3, 2}}, {33, 40, {}}, {70, 64, {0, 8}}, {3, 1030, {1, 0}}};

// T: how activations are stored.
template <typename T>
class CudaLinearEpilogueTest : public ::testing::Test {};
using StoredTypes = ::testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(CudaLinearEpilogueTest, StoredTypes);

TYPED_TEST(CudaLinearEpilogueTest, DropoutIsTheCountedOne) {
  using T = TypeParam;
  Dropout dropout = {{.seed = 0x123456789ABCull, .step = 9, .micro_batch = 2, .sublayer = 5}, Dropout::Threshold(0.3)};
  for (const Case& c : kCases) {
    KernelDevice device(/*seed=*/1);
    const std::vector<float> y = Rounded<T>(NormalValues(c.rows * c.width, 1));
    DeviceMatrixOf<T> on_device(device, y, c.rows, c.width, c.place);
    DeviceVectorOf<cuda::RandomPosition> position(device, {cuda::PositionOf(dropout)});
    dropout.device_position = position.data();
    cuda::DropoutRows<T>(
        device.stream(),
        {.rows = c.rows, .width = c.width, .dropout = cuda::DeviceDropoutOf(dropout), .y = on_device.view()});
    const std::vector<float> result = on_device.dense();
    for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(result[i], Rounded<T>(y[i] * DropoutFactor(dropout, i))) << i;
    EXPECT_TRUE(on_device.guards_intact());
  }
}

TYPED_TEST(CudaLinearEpilogueTest, ABiasIsAddedToEveryRow) {
  using T = TypeParam;
  for (const Case& c : kCases) {
    for (const int what : {1, 2, 3}) {  // bias, ReLU, both
      KernelDevice device(/*seed=*/4);
      std::vector<float> y = Rounded<T>(NormalValues(c.rows * c.width, 1));
      const std::vector<float> bias = Rounded<T>(NormalValues(c.width, 2));
      y[0] = std::numeric_limits<float>::quiet_NaN();
      DeviceMatrixOf<T> on_device(device, y, c.rows, c.width, c.place), added(device, bias, 1, c.width, c.place);
      cuda::BiasRows<T>(device.stream(), {.rows = c.rows,
                                          .width = c.width,
                                          .bias = what == 2 ? nullptr : added.view().data,
                                          .relu = what > 1,
                                          .y = on_device.view()});
      const std::vector<float> result = on_device.dense();
      EXPECT_TRUE(std::isnan(result[0]));
      for (size_t i = 1; i < y.size(); ++i) {
        const float sum = what == 2 ? y[i] : y[i] + bias[i % c.width];
        ASSERT_EQ(result[i], Rounded<T>(what > 1 ? std::max(sum, 0.0f) : sum)) << i;
      }
      EXPECT_TRUE(on_device.guards_intact());
    }
  }
}

TYPED_TEST(CudaLinearEpilogueTest, ColumnSumsAddToWhatIsThere) {
  using T = TypeParam;
  for (const Case& c : kCases) {
    const std::vector<float> x = Rounded<T>(NormalValues(c.rows * c.width, 1)), before = NormalValues(c.width, 2);
    std::vector<float> first;
    for (const uint64_t seed : {1, 2}) {
      KernelDevice device(seed);
      DeviceMatrixOf<T> matrix(device, x, c.rows, c.width, c.place);
      DeviceVectorOf<float> sums(device, before);
      DeviceVectorOf<float> partials(device, (c.rows / 32 + 1) * c.width);
      cuda::ColumnSums<T>(
          device.stream(),
          {.rows = c.rows, .width = c.width, .x = matrix.view(), .sums = sums.data(), .partials = partials.data()});
      const std::vector<float> result = sums.Read();
      for (int64_t j = 0; j < c.width; ++j) {
        double sum = before[j], size = std::abs(before[j]);
        for (int64_t i = 0; i < c.rows; ++i) sum += x[i * c.width + j], size += std::abs(x[i * c.width + j]);
        ASSERT_NEAR(result[j], sum, 1e-6 * size) << "column " << j << " of " << c.rows << " rows";
      }
      if (seed == 1) first = result;
      EXPECT_EQ(result, first) << "another order of threads changes bits";
    }
  }
}

// Together what ReluMask and ColumnSums give one after the other, bit for bit.
TYPED_TEST(CudaLinearEpilogueTest, TheMaskLetsPositiveOutputsPassAloneAndWithSumsInOneTrip) {
  using T = TypeParam;
  for (const Case& c : kCases) {
    const std::vector<float> y = Rounded<T>(NormalValues(c.rows * c.width, 1)),
                             dx = Rounded<T>(NormalValues(c.rows * c.width, 2)), before = NormalValues(c.width, 3);
    std::vector<float> masked[2], sums[2];
    for (const int together : {0, 1}) {
      KernelDevice device(/*seed=*/1 + together);
      DeviceMatrixOf<T> output(device, y, c.rows, c.width, c.place), gradient(device, dx, c.rows, c.width, c.place);
      DeviceVectorOf<float> sum(device, before), partials(device, (c.rows / 32 + 1) * c.width);
      const int64_t rows = c.rows, width = c.width;
      if (together) {
        cuda::ReluMaskSums<T>(device.stream(), {.rows = rows,
                                                .width = width,
                                                .relu_output = output.view(),
                                                .mask_scale = 1.25f,
                                                .dx = gradient.view(),
                                                .sums = sum.data(),
                                                .partials = partials.data()});
      } else {
        cuda::ReluMask<T>(
            device.stream(),
            {.rows = rows, .width = width, .relu_output = output.view(), .mask_scale = 1.25f, .dx = gradient.view()});
        cuda::ColumnSums<T>(
            device.stream(),
            {.rows = rows, .width = width, .x = gradient.view(), .sums = sum.data(), .partials = partials.data()});
      }
      masked[together] = gradient.dense(), sums[together] = sum.Read();
      EXPECT_TRUE(gradient.guards_intact());
    }
    for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(masked[0][i], y[i] > 0 ? Rounded<T>(dx[i] * 1.25f) : 0.0f) << i;
    EXPECT_EQ(masked[1], masked[0]) << c.rows << " x " << c.width;
    EXPECT_EQ(sums[1], sums[0]) << c.rows << " x " << c.width;
  }
}

// Thirty-two rows a block, more where the sums of so many would not fit into scratch.
static_assert(cuda::ColumnRowBlock(4096, 512) == 32 && cuda::ColumnRowBlock(16384, 512) == 32);
static_assert(cuda::ColumnRowBlock(16384, 4096) == 256 && cuda::ColumnRowBlock(7, int64_t{1} << 20) == 32);

TEST(CudaAddTest, AddsEveryElementOnce) {
  for (const int64_t count : {1, 8, 2050}) {
    for (const int64_t offset : {0, 3}) {
      KernelDevice device(/*seed=*/3);
      const std::vector<float> values = NormalValues(count, 1), before = NormalValues(count, 2);
      DeviceMatrixOf<float> sum(device, before, 1, count, {offset, 5}), added(device, values, 1, count, {offset, 5});
      cuda::Add(device.stream(), {.sum = {sum.view().data, count}, .values = {added.view().data, count}});
      const std::vector<float> result = sum.dense();
      for (int64_t i = 0; i < count; ++i) ASSERT_EQ(result[i], before[i] + values[i]) << i;
      EXPECT_TRUE(sum.guards_intact());
    }
  }
}

}  // namespace
}  // namespace hadal
