#include "kernels/cuda/shift_scale.h"

#include <cmath>

#include "gtest/gtest.h"
#include "tests/support/kernel_device.h"
#include "tests/support/random_inputs.h"
#include "tests/support/shift_scale_reference.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {
namespace {

using cuda::BFloat16;

using One = std::vector<float>;
constexpr float kShift = 0.3f, kScale = -1.7f;

struct Case {
  int64_t rows, width;
  bool scaled, accumulate;
  Placement place;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const bool scaled : {false, true}) {
    for (const bool accumulate : {false, true}) {
      for (const auto& [rows, width] : {std::pair<int64_t, int64_t>(1, 1), {5, 21}, {33, 64}, {70, 72}, {100, 40}}) {
        cases.push_back({rows, width, scaled, accumulate, {}});
        cases.push_back({rows, width, scaled, accumulate, {3, 5}});
      }
    }
  }
  return cases;
}

struct Results {
  std::vector<float> y, dx, d_shift, d_scale;
};

// X, Y: the stored types of the two sides.
template <typename X, typename Y>
struct Tensors {
  explicit Tensors(const Case& c)
      : x(Rounded<X>(NormalValues(c.rows * c.width, 1))),
        dy(Rounded<Y>(NormalValues(c.rows * c.width, 2))),
        before(Rounded<X>(NormalValues(c.rows * c.width, 3))) {}

  Results Run(const Case& c, uint64_t seed, bool in_place = false) const {
    KernelDevice device(seed);
    const auto read = DeviceMatrixOf<X>(device, x, c.rows, c.width, c.place);
    const auto gradient = DeviceMatrixOf<Y>(device, dy, c.rows, c.width, c.place);
    const auto out = DeviceMatrixOf<Y>(device, dy, c.rows, c.width, c.place);
    const auto to = DeviceMatrixOf<X>(device, before, c.rows, c.width, c.place);
    const DeviceVectorOf<float> shift(device, One{kShift}), scale(device, One{kScale});
    const DeviceVectorOf<float> d_shift(device, One{5.0f}), d_scale(device, One{7.0f}), partials(device, 2 * c.rows);
    ShiftScaleForwardArgs forward{.x = read.view(), .shift = shift.view(), .y = out.view()};
    if (c.scaled) forward.scale = scale.view();
    ShiftScaleBackwardArgs backward{.dy = gradient.view(), .shift = forward.shift, .scale = forward.scale};
    backward.accumulate = c.accumulate, backward.dx = to.view();
    backward.d_shift = d_shift.view(), backward.partials = partials.view();
    if (c.scaled) backward.x = read.view(), backward.d_scale = d_scale.view();
    const DeviceMatrixOf<X>* written = &to;
    if constexpr (std::is_same_v<X, Y>) {
      if (in_place) backward.dx = gradient.view(), written = &gradient;
    }
    cuda::ShiftScaleForward(device.stream(), forward);
    cuda::ShiftScaleBackward(device.stream(), backward);
    EXPECT_TRUE(out.guards_intact() && written->guards_intact());
    return {out.dense(), written->dense(), d_shift.Read(), d_scale.Read()};
  }

  std::vector<float> x, dy, before;
};

template <typename Pair>
class CudaShiftScaleTest : public ::testing::Test {};
using StoredTypes =
    ::testing::Types<std::pair<float, float>, std::pair<float, BFloat16>, std::pair<BFloat16, BFloat16>>;
TYPED_TEST_SUITE(CudaShiftScaleTest, StoredTypes);

template <typename T>
constexpr double kRoundoff = std::is_same_v<T, float> ? 0 : kBFloat16Roundoff;

TYPED_TEST(CudaShiftScaleTest, MatchesTheDefinitionInAnyOrderAndPlace) {
  using X = typename TypeParam::first_type;
  using Y = typename TypeParam::second_type;
  for (Case c : Cases()) {
    SCOPED_TRACE(::testing::Message() << c.rows << " rows of " << c.width << ", " << c.scaled << c.accumulate);
    const Tensors<X, Y> t(c);
    const Results results = t.Run(c, 1);
    const ShiftScaleReference reference{Widen(t.x), {kShift}, {c.scaled ? kScale : 1.0f}};
    ShiftScaleReference::Gradients gradients = reference.Backward(Widen(t.dy));
    for (size_t i = 0; c.accumulate && i < t.before.size(); ++i) gradients.dx[i] += t.before[i];
    gradients.d_shift[0] += 5;
    gradients.d_scale[0] = c.scaled ? gradients.d_scale[0] + 7 : 7;
    EXPECT_TRUE(NearReference(results.y, reference.Forward(), 4, 2, kRoundoff<Y>));
    EXPECT_TRUE(NearReference(results.dx, gradients.dx, 8, 2, kRoundoff<X>));
    const double magnitude = 4 * std::sqrt(c.rows * c.width);
    EXPECT_TRUE(NearReference(results.d_shift, gradients.d_shift, magnitude, 8));
    EXPECT_TRUE(NearReference(results.d_scale, gradients.d_scale, magnitude, 8));
    c.place = {1, 2};
    const Results other = t.Run(c, 2, /*in_place=*/!c.accumulate);
    EXPECT_TRUE(SameBits(other.y, results.y));
    EXPECT_TRUE(SameBits(other.dx, results.dx));
    EXPECT_TRUE(SameBits(other.d_shift, results.d_shift));
    EXPECT_TRUE(SameBits(other.d_scale, results.d_scale));
  }
}

}  // namespace
}  // namespace hadal::testing
