#include "kernels/cuda/weighted_sum.h"

#include <cmath>

#include "gtest/gtest.h"
#include "tests/support/kernel_device.h"
#include "tests/support/random_inputs.h"
#include "tests/support/strided_matrix.h"
#include "tests/support/weighted_sum_reference.h"

namespace hadal::testing {
namespace {

using cuda::BFloat16;

struct Case {
  int64_t rows, width, terms;
  Placement place;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const auto& [rows, width] : {std::pair<int64_t, int64_t>(1, 1), {5, 21}, {33, 64}, {70, 40}}) {
    for (const int64_t terms : {1, 2, 7}) {
      cases.push_back({rows, width, terms, {}});
      cases.push_back({rows, width, terms, {3, 5}});
    }
  }
  cases.push_back({2, 8, 300, {}});  // more terms than a block has threads
  return cases;
}

struct Results {
  std::vector<float> y, dx, d_weights;
};

// X: the type of x and dy; Y: that of y.
template <typename FirstType, typename SecondType>
struct Tensors {
  using X = FirstType;
  using Y = SecondType;

  explicit Tensors(const Case& c)
      : x(Rounded<X>(NormalValues(c.terms * c.rows * c.width, 1))),
        dy(Rounded<X>(NormalValues(c.rows * c.width, 2))),
        weights(NormalValues(c.terms, 3)),
        before(NormalValues(c.terms * c.rows * c.width, 4)) {}

  Results Run(const Case& c, uint64_t seed) const {
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
using StoredTypes = ::testing::Types<Tensors<float, float>, Tensors<float, BFloat16>, Tensors<BFloat16, BFloat16>>;
TYPED_TEST_SUITE(CudaWeightedSumTest, StoredTypes);

TYPED_TEST(CudaWeightedSumTest, MatchesTheDefinitionInAnyOrderAndPlace) {
  for (Case c : Cases()) {
    SCOPED_TRACE(::testing::Message() << c.terms << " terms of " << c.rows << " rows of " << c.width);
    const TypeParam t(c);
    const Results results = t.Run(c, 1);
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
    const Results other = t.Run(c, 2);
    EXPECT_TRUE(SameBits(other.y, results.y));
    EXPECT_TRUE(SameBits(other.dx, results.dx));
    EXPECT_TRUE(SameBits(other.d_weights, results.d_weights));
  }
}

// A weight of 1 among zeros picks its term.
TYPED_TEST(CudaWeightedSumTest, OneAmongZerosPicksItsTermBitForBit) {
  const Case c = {5, 24, 7, {}};
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
