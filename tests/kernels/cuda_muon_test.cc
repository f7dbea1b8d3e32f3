#include "kernels/cuda/operations.h"

#include <vector>

#include "gtest/gtest.h"
#include "tests/support/kernel_device.h"
#include "tests/support/random_inputs.h"

namespace hadal::testing {
namespace {

template <typename T>
std::vector<float> Values(const DeviceVectorOf<T>& from) {
  std::vector<float> values;
  for (const T value : from.Read()) values.push_back(Value(value));
  return values;
}

// Also misaligned, and where the last span is not whole.
TEST(CudaMuonTest, MomentumAndStepAreTheDefinitions) {
  constexpr int64_t kSize = 2500;
  constexpr float kDecay = 1e-3f, kStepSize = 0.1f;
  const std::vector<float> g = NormalValues(kSize + 1, 1), m = NormalValues(kSize + 1, 2);
  for (const int64_t offset : {0, 1}) {
    for (const bool nesterov : {true, false}) {
      MuonMomentumArgs args{.decay = 0.9, .nesterov = nesterov, .gradient_scale = 0.25};
      const MuonMomentumScalars s = MuonMomentumScalarsOf(args);
      std::vector<float> direction = g, momentum = m, parameter = m, rounded(kSize + 1);
      for (int64_t i = offset; i < offset + kSize; ++i) {
        const float fresh = s.one_minus_decay * (s.gradient_scale * g[i]);
        momentum[i] = s.decay * m[i] + fresh;
        direction[i] = nesterov ? fresh + s.decay * momentum[i] : momentum[i];
        parameter[i] = (m[i] - kDecay * m[i]) - kStepSize * direction[i];
        rounded[i] = Rounded<BFloat16>(parameter[i]);
      }
      KernelDevice device(/*seed=*/1);
      const DeviceVectorOf<float> on_g(device, g), on_m(device, m), on_parameter(device, m);
      const DeviceVectorOf<BFloat16> on_rounded(device, std::vector<BFloat16>(kSize + 1));
      args.gradient = {on_g.data() + offset, kSize}, args.momentum = {on_m.data() + offset, kSize};
      cuda::MuonMomentum(device.stream(), args);
      cuda::MuonStep(device.stream(), {.parameter = {on_parameter.data() + offset, kSize},
                                       .direction = {on_g.data() + offset, kSize},
                                       .rounded = {on_rounded.data() + offset, kSize},
                                       .decay = kDecay,
                                       .step_size = kStepSize});
      EXPECT_EQ(Values(on_g), direction);
      EXPECT_EQ(Values(on_m), momentum);
      EXPECT_EQ(Values(on_parameter), parameter);
      EXPECT_EQ(Values(on_rounded), rounded);
    }
  }
}

template <typename T>
class CudaMuonProductsTest : public ::testing::Test {};
using StoredTypes = ::testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(CudaMuonProductsTest, StoredTypes);

TYPED_TEST(CudaMuonProductsTest, ScaledAndPolynomialAreTheDefinitions) {
  using T = TypeParam;
  for (const int64_t n : {48, 51}) {  // 51 x 51: no whole eights
    const std::vector<float> a = NormalValues(n * n, 1), square = NormalValues(n * n, 2);
    KernelDevice device(/*seed=*/1);
    const DeviceVectorOf<float> on_a(device, a), on_square(device, square);
    const DeviceVectorOf<T> scaled(device, n * n), polynomial(device, n * n);
    cuda::Scaled(device.stream(), {.from = {on_a.data(), n, n}, .scale = 0.3f, .to = MatrixOf<T>(scaled.data(), n, n)});
    cuda::Polynomial(device.stream(), {.a = {on_a.data(), n, n},
                                       .square = {on_square.data(), n, n},
                                       .c0 = 3,
                                       .c1 = -4,
                                       .c2 = 2,
                                       .to = MatrixOf<T>(polynomial.data(), n, n)});
    std::vector<float> expected_scaled, expected;
    for (int64_t i = 0; i < n * n; ++i) {
      expected_scaled.push_back(Rounded<T>(0.3f * a[i]));
      const float value = -4 * a[i] + 2 * square[i];
      expected.push_back(Rounded<T>(i % n == i / n ? 3 + value : value));
    }
    EXPECT_EQ(Values(scaled), expected_scaled);
    EXPECT_EQ(Values(polynomial), expected);
  }
}

}  // namespace
}  // namespace hadal::testing
