#include "kernels/weighted_sum.h"

#include "gtest/gtest.h"
#include "tests/support/each_instruction_set.h"
#include "tests/support/finite_difference.h"
#include "tests/support/random_inputs.h"
#include "tests/support/strided_matrix.h"
#include "tests/support/weighted_sum_reference.h"

namespace hadal::testing {
namespace {

struct Case {
  Case(int64_t rows, int64_t width, int64_t terms) : rows(rows), width(width), terms(terms) {
    x = NormalValues(terms * rows * width, 1), dy = NormalValues(rows * width, 2), weights = NormalValues(terms, 3);
    before = NormalValues(terms * rows * width, 4);
    reference = {Widen(x), Widen(weights), static_cast<size_t>(rows * width)};
  }
  int64_t rows, width, terms;
  std::vector<float> x, dy, weights, before;  // `before`: what the gradient is added to
  WeightedSumReference reference;
};

std::vector<float> Forward(const Case& c, int threads) {
  StridedMatrix x(c.x, c.terms * c.rows, c.width), y(c.dy, c.rows, c.width);
  WeightedSumForward(Stream::Cpu(threads), {.x = x.view(), .weights = {c.weights.data(), c.terms}, .y = y.view()});
  EXPECT_TRUE(y.guards_intact());
  return y.dense();
}

struct Backward {
  Backward(const Case& c, int threads) : d_weights(c.terms, 5.0f) {
    StridedMatrix x(c.x, c.terms * c.rows, c.width), dy(c.dy, c.rows, c.width), to(c.before, c.terms * c.rows, c.width);
    std::vector<float> partials(WeightedSumPartials(c.rows, c.terms), NAN);
    WeightedSumBackward(Stream::Cpu(threads), {.dy = dy.view(),
                                               .x = x.view(),
                                               .weights = {c.weights.data(), c.terms},
                                               .dx = to.view(),
                                               .d_weights = {d_weights.data(), c.terms},
                                               .partials = {partials.data(), static_cast<int64_t>(partials.size())}});
    EXPECT_TRUE(to.guards_intact());
    dx = to.dense();
  }
  std::vector<float> dx, d_weights;  // not zero at first, to show that they are added to
};

template <typename Check>
void ForEachCase(const Check& check) {
  for (const auto& [rows, width] : {std::pair(1, 1), {5, 21}, {33, 64}, {70, 72}, {64, 65}}) {
    for (const int terms : {1, 2, 5, 8, 13}) {
      SCOPED_TRACE(::testing::Message() << terms << " terms of " << rows << " rows of " << width);
      check(Case(rows, width, terms));
    }
  }
}

TEST(WeightedSumReferenceTest, GradientsMatchFiniteDifferences) {
  Case c(3, 4, 3);
  const std::vector<double> dy = Widen(c.dy);
  const auto loss = [&] { return Dot(dy, c.reference.Forward()); };
  const WeightedSumReference::Gradients g = c.reference.Backward(dy);
  EXPECT_TRUE(IsGradient(c.reference.x, loss, g.dx));
  EXPECT_TRUE(IsGradient(c.reference.weights, loss, g.d_weights));
}

TEST(WeightedSumTest, MatchesReferenceOnAnyNumberOfThreads) {
  ForEachInstructionSet([] {
    ForEachCase([](const Case& c) {
      const std::vector<float> y = Forward(c, 1);
      EXPECT_TRUE(NearReference(y, c.reference.Forward(), 4.0 * static_cast<double>(c.terms), 2));
      WeightedSumReference::Gradients g = c.reference.Backward(Widen(c.dy));
      for (double& gradient : g.d_weights) gradient += 5;
      for (size_t i = 0; i < g.dx.size(); ++i) g.dx[i] += c.before[i];
      const Backward got(c, 1);
      EXPECT_TRUE(NearReference(got.dx, g.dx, 8, 2));
      EXPECT_TRUE(NearReference(got.d_weights, g.d_weights, 4 * std::sqrt(c.rows * c.width), 8));
      for (const int threads : {2, 3}) {
        const Backward parallel(c, threads);
        EXPECT_TRUE(SameBits(Forward(c, threads), y));
        EXPECT_TRUE(SameBits(parallel.dx, got.dx));
        EXPECT_TRUE(SameBits(parallel.d_weights, got.d_weights));
      }
    });
  });
}

// A weight of 1 among zeros picks its term.
TEST(WeightedSumTest, OneAmongZerosPicksItsTermBitForBit) {
  for (const int64_t picked : {0, 3, 6}) {
    Case c(5, 21, 7);
    c.weights.assign(7, 0.0f);
    c.weights[picked] = 1;
    const auto first = c.x.begin() + picked * 5 * 21;
    EXPECT_TRUE(SameBits(Forward(c, 1), {first, first + 5 * 21}));
  }
}

}  // namespace
}  // namespace hadal::testing
