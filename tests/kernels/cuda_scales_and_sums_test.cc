#include "kernels/cuda/head_scale.h"

#include <cmath>

#include "gtest/gtest.h"
#include "kernels/cuda/shift_scale.h"
#include "kernels/cuda/weighted_sum.h"
#include "tests/support/kernel_device.h"
#include "tests/support/random_inputs.h"
#include "tests/support/scales_and_sums_reference.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {
namespace {

using cuda::BFloat16;

struct HeadCase {
  int64_t rows, heads, head_width;
  Placement place;
};
const HeadCase kHeadCases[] = {{1, 1, 1, {}}, {7, 3, 5, {3, 2}}, {40, 4, 16, {}}, {70, 2, 24, {8, 8}}};

// T: how x, y and their gradients are stored.
template <typename T>
class CudaHeadScaleTest : public ::testing::Test {};
using HeadTypes = ::testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(CudaHeadScaleTest, HeadTypes);

TYPED_TEST(CudaHeadScaleTest, ScalesEachHead) {
  using T = TypeParam;
  for (const HeadCase& c : kHeadCases) {
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
  for (const HeadCase& c : kHeadCases) {
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

using One = std::vector<float>;
constexpr float kShift = 0.3f, kScale = -1.7f;

struct ShiftCase {
  int64_t rows, width;
  bool scaled, accumulate;
  Placement place;
};

std::vector<ShiftCase> ShiftCases() {
  std::vector<ShiftCase> cases;
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

struct ShiftResults {
  std::vector<float> y, dx, d_shift, d_scale;
};

// X, Y: the stored types of the two sides.
template <typename X, typename Y>
struct ShiftTensors {
  explicit ShiftTensors(const ShiftCase& c)
      : x(Rounded<X>(NormalValues(c.rows * c.width, 1))),
        dy(Rounded<Y>(NormalValues(c.rows * c.width, 2))),
        before(Rounded<X>(NormalValues(c.rows * c.width, 3))) {}

  ShiftResults Run(const ShiftCase& c, uint64_t seed, bool in_place = false) const {
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
using ShiftTypes = ::testing::Types<std::pair<float, float>, std::pair<float, BFloat16>, std::pair<BFloat16, BFloat16>>;
TYPED_TEST_SUITE(CudaShiftScaleTest, ShiftTypes);

template <typename T>
constexpr double kRoundoff = std::is_same_v<T, float> ? 0 : kBFloat16Roundoff;

TYPED_TEST(CudaShiftScaleTest, MatchesTheDefinitionInAnyOrderAndPlace) {
  using X = typename TypeParam::first_type;
  using Y = typename TypeParam::second_type;
  for (ShiftCase c : ShiftCases()) {
    SCOPED_TRACE(::testing::Message() << c.rows << " rows of " << c.width << ", " << c.scaled << c.accumulate);
    const ShiftTensors<X, Y> t(c);
    const ShiftResults results = t.Run(c, 1);
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
    const ShiftResults other = t.Run(c, 2, /*in_place=*/!c.accumulate);
    EXPECT_TRUE(SameBits(other.y, results.y));
    EXPECT_TRUE(SameBits(other.dx, results.dx));
    EXPECT_TRUE(SameBits(other.d_shift, results.d_shift));
    EXPECT_TRUE(SameBits(other.d_scale, results.d_scale));
  }
}

struct SumCase {
  int64_t rows, width, terms;
  Placement place;
};

std::vector<SumCase> SumCases() {
  std::vector<SumCase> cases;
  for (const auto& [rows, width] : {std::pair<int64_t, int64_t>(1, 1), {5, 21}, {33, 64}, {70, 40}}) {
    for (const int64_t terms : {1, 2, 7}) {
      cases.push_back({rows, width, terms, {}});
      cases.push_back({rows, width, terms, {3, 5}});
    }
  }
  cases.push_back({2, 8, 300, {}});  // more terms than a block has threads
  return cases;
}

struct SumResults {
  std::vector<float> y, dx, d_weights;
};

// X: the type of x and dy; Y: that of y.
template <typename FirstType, typename SecondType>
struct SumTensors {
  using X = FirstType;
  using Y = SecondType;

  explicit SumTensors(const SumCase& c)
      : x(Rounded<X>(NormalValues(c.terms * c.rows * c.width, 1))),
        dy(Rounded<X>(NormalValues(c.rows * c.width, 2))),
        weights(NormalValues(c.terms, 3)),
        before(NormalValues(c.terms * c.rows * c.width, 4)) {}

  SumResults Run(const SumCase& c, uint64_t seed) const {
    KernelDevice device(seed);
    const auto history = DeviceMatrixOf<X>(device, x, c.terms * c.rows, c.width, c.place);
    const auto gradient = DeviceMatrixOf<X>(device, dy, c.rows, c.width, c.place);
    const auto y = DeviceMatrixOf<Y>(device, dy, c.rows, c.width, c.place);
    const auto dx = DeviceMatrixOf<float>(device, before, c.terms * c.rows, c.width, c.place);
    const DeviceVectorOf<float> w(device, weights), d_weights(device, std::vector<float>(c.terms, 5.0f));
    const DeviceVectorOf<float> partials(device, c.terms * c.rows);
    cuda::WeightedSumForward(device.stream(), {.x = history.view(), .weights = w.view(), .y = y.view()});
    cuda::WeightedSumBackward(device.stream(), {.dy = gradient.view(),
                                                .x = history.view(),
                                                .weights = w.view(),
                                                .dx = dx.view(),
                                                .d_weights = d_weights.view(),
                                                .partials = partials.view()});
    EXPECT_TRUE(y.guards_intact() && dx.guards_intact());
    return {y.dense(), dx.dense(), d_weights.Read()};
  }

  std::vector<float> x, dy, weights, before;
};

template <typename T>
class CudaWeightedSumTest : public ::testing::Test {};
using SumTypes =
    ::testing::Types<SumTensors<float, float>, SumTensors<float, BFloat16>, SumTensors<BFloat16, BFloat16>>;
TYPED_TEST_SUITE(CudaWeightedSumTest, SumTypes);

TYPED_TEST(CudaWeightedSumTest, MatchesTheDefinitionInAnyOrderAndPlace) {
  for (SumCase c : SumCases()) {
    SCOPED_TRACE(::testing::Message() << c.terms << " terms of " << c.rows << " rows of " << c.width);
    const TypeParam t(c);
    const SumResults results = t.Run(c, 1);
    const int64_t size = c.rows * c.width;
    const WeightedSumReference reference{Widen(t.x), Widen(t.weights), static_cast<size_t>(size)};
    WeightedSumReference::Gradients gradients = reference.Backward(Widen(t.dy));
    for (size_t i = 0; i < t.before.size(); ++i) gradients.dx[i] += t.before[i];
    for (double& gradient : gradients.d_weights) gradient += 5;
    const double terms = static_cast<double>(c.terms);
    EXPECT_TRUE(NearReference(results.y, reference.Forward(), 4 * terms, 2,
                              std::is_same_v<typename TypeParam::Y, float> ? 0 : kBFloat16Roundoff));
    EXPECT_TRUE(NearReference(results.dx, gradients.dx, 8, 2));
    EXPECT_TRUE(NearReference(results.d_weights, gradients.d_weights, 4 * std::sqrt(size), 8));
    c.place = {1, 2};
    const SumResults other = t.Run(c, 2);
    EXPECT_TRUE(SameBits(other.y, results.y));
    EXPECT_TRUE(SameBits(other.dx, results.dx));
    EXPECT_TRUE(SameBits(other.d_weights, results.d_weights));
  }
}

// A weight of 1 among zeros picks its term.
TYPED_TEST(CudaWeightedSumTest, OneAmongZerosPicksItsTermBitForBit) {
  const SumCase c = {5, 24, 7, {}};
  for (const int64_t picked : {0, 3, 6}) {
    TypeParam t(c);
    t.weights.assign(7, 0.0f);
    t.weights[picked] = 1;
    const auto term = t.x.begin() + picked * 5 * 24;
    EXPECT_TRUE(SameBits(t.Run(c, 1).y, Rounded<typename TypeParam::Y>({term, term + 5 * 24})));
  }
}

}  // namespace
}  // namespace hadal::testing
