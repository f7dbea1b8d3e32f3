#include "kernels/cuda/head_scale.h"

#include <cmath>

#include "gtest/gtest.h"
#include "tests/support/head_scale_reference.h"
#include "tests/support/kernel_device.h"
#include "tests/support/random_inputs.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {
namespace {

struct Case {
  int64_t rows, heads, head_width;
  Placement place;
};
const Case kCases[] = {{1, 1, 1, {}}, {7, 3, 5, {3, 2}}, {40, 4, 16, {}}, {70, 2, 24, {8, 8}}};

// T: how x, y and their gradients are stored.
template <typename T>
class CudaHeadScaleTest : public ::testing::Test {};
using StoredTypes = ::testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(CudaHeadScaleTest, StoredTypes);

TYPED_TEST(CudaHeadScaleTest, ScalesEachHead) {
  using T = TypeParam;
  for (const Case& c : kCases) {
    KernelDevice device(/*seed=*/1);
    const int64_t width = c.heads * c.head_width;
    const std::vector<float> x = Rounded<T>(NormalValues(c.rows * width, 1)), gain = NormalValues(c.heads, 2);
    DeviceMatrixOf<T> matrix(device, x, c.rows, width, c.place);
    DeviceVectorOf<float> gains(device, gain);
    cuda::HeadScaleForward(device.stream(), {.x = matrix.view(), .gain = gains.view(), .y = matrix.view()});
    const std::vector<float> y = matrix.dense();
    for (int64_t i = 0; i < c.rows * width; ++i)
      ASSERT_EQ(y[i], Rounded<T>(gain[i % width / c.head_width] * x[i])) << i;
    EXPECT_TRUE(matrix.guards_intact());
  }
}

TYPED_TEST(CudaHeadScaleTest, GainGradientsAddToWhatIsThere) {
  using T = TypeParam;
  for (const Case& c : kCases) {
    const int64_t width = c.heads * c.head_width;
    const std::vector<float> dy = Rounded<T>(NormalValues(c.rows * width, 1));
    const std::vector<float> x = Rounded<T>(NormalValues(c.rows * width, 2));
    const std::vector<float> before = NormalValues(c.heads, 3), gain = NormalValues(c.heads, 4);
    const HeadScaleReference reference{c.rows, width, Widen(x), std::vector<double>(c.heads)};
    std::vector<double> gradients = reference.Backward(Widen(dy)).d_gain;
    for (int64_t h = 0; h < c.heads; ++h) gradients[h] += before[h];
    std::vector<float> first;
    for (const uint64_t seed : {1, 2}) {
      KernelDevice device(seed);
      DeviceMatrixOf<T> gradient(device, dy, c.rows, width, c.place), input(device, x, c.rows, width, c.place);
      DeviceVectorOf<float> sums(device, before), gains(device, gain);
      DeviceVectorOf<float> partials(device, std::vector<float>(HeadScalePartials(c.rows, c.heads), NAN));
      cuda::HeadScaleBackward(device.stream(), {.dy = gradient.view(),
                                                .x = input.view(),
                                                .gain = gains.view(),
                                                .dx = gradient.view(),
                                                .d_gain = sums.view(),
                                                .partials = partials.view()});
      const std::vector<float> result = sums.Read();
      EXPECT_TRUE(NearReference(result, gradients, 4 * std::sqrt(c.rows * c.head_width), 8));
      const std::vector<float> dx = gradient.dense();
      for (int64_t i = 0; i < c.rows * width; ++i)
        ASSERT_EQ(dx[i], Rounded<T>(gain[i % width / c.head_width] * dy[i])) << i;
      EXPECT_TRUE(gradient.guards_intact());
      if (seed == 1) first = result;
      EXPECT_EQ(result, first) << "another order of threads changes bits";
    }
  }
}

}  // namespace
}  // namespace hadal::testing
