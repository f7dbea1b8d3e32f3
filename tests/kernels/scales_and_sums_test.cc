// Operations with a few learned numbers: a gain for each head, a shift and a scale, the weights of a sum. Each beside
// its reference, on every instruction set; no number of threads and no place of an output changes a bit.

#include "gtest/gtest.h"
#include "kernels/head_scale.h"
#include "kernels/shift_scale.h"
#include "kernels/weighted_sum.h"
#include "tests/support/each_instruction_set.h"
#include "tests/support/finite_difference.h"
#include "tests/support/random_inputs.h"
#include "tests/support/scales_and_sums_reference.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {
namespace {

// y; dx; the gradients of the learned numbers, which are added to what is there.
template <typename T>
struct Results {
  std::vector<T> y, dx, sums;
};

ConstVector Numbers(const std::vector<float>& values) { return {values.data(), std::ssize(values)}; }
Vector Numbers(std::vector<float>& values) { return {values.data(), std::ssize(values)}; }

struct HeadScaleCase {
  HeadScaleCase(int64_t rows, int64_t heads, int64_t head_width)
      : rows(rows), width(heads * head_width), x(NormalValues(rows * width, 1)), gain(NormalValues(heads, 3)) {}

  Results<float> Run(int threads, bool in_place) const {
    const Stream stream = Stream::Cpu(threads);
    StridedMatrix in(x, rows, width), y(dy, rows, width), gradient(dy, rows, width), fresh(x, rows, width);
    StridedMatrix& dx = in_place ? gradient : fresh;
    std::vector<float> sums = gain, partials(HeadScalePartials(rows, std::ssize(gain)), NAN);
    HeadScaleForward(stream, {.x = in.view(), .gain = Numbers(gain), .y = y.view()});
    HeadScaleBackwardArgs args = {.dy = gradient.view(), .x = in.view(), .gain = Numbers(gain), .dx = dx.view()};
    args.d_gain = Numbers(sums), args.partials = Numbers(partials);
    HeadScaleBackward(stream, args);
    EXPECT_TRUE(y.guards_intact() && dx.guards_intact());
    return {y.dense(), dx.dense(), sums};
  }
  Results<double> Reference() const {
    const HeadScaleReference reference = {rows, width, Widen(x), Widen(gain)};
    HeadScaleReference::Gradients g = reference.Backward(Widen(dy));
    for (size_t h = 0; h < gain.size(); ++h) g.d_gain[h] += gain[h];
    return {reference.Forward(), g.dx, g.d_gain};
  }

  int64_t rows, width;
  std::vector<float> x, gain, dy = NormalValues(rows * width, 2);
  double y_magnitude = 4, dx_magnitude = 4, multiple = 1;
  double elements = static_cast<double>(rows * width / std::ssize(gain));  // of one sum
};

struct WeightedSumCase {
  WeightedSumCase(int64_t rows, int64_t width, int64_t terms)
      : rows(rows), width(width), x(NormalValues(terms * rows * width, 1)), weights(NormalValues(terms, 3)) {}

  Results<float> Run(int threads, bool) const {
    const Stream stream = Stream::Cpu(threads);
    const int64_t all = std::ssize(weights) * rows;
    StridedMatrix in(x, all, width), y(dy, rows, width), gradient(dy, rows, width), dx(before, all, width);
    std::vector<float> sums(weights.size(), 5.0f), partials(WeightedSumPartials(rows, std::ssize(weights)), NAN);
    WeightedSumForward(stream, {.x = in.view(), .weights = Numbers(weights), .y = y.view()});
    WeightedSumBackwardArgs args = {.dy = gradient.view(), .x = in.view(), .weights = Numbers(weights)};
    args.dx = dx.view(), args.d_weights = Numbers(sums), args.partials = Numbers(partials);
    WeightedSumBackward(stream, args);
    EXPECT_TRUE(y.guards_intact() && dx.guards_intact());
    return {y.dense(), dx.dense(), sums};
  }
  Results<double> Reference() const {
    const WeightedSumReference reference = {Widen(x), Widen(weights), static_cast<size_t>(rows * width)};
    WeightedSumReference::Gradients g = reference.Backward(Widen(dy));
    for (double& gradient : g.d_weights) gradient += 5;
    for (size_t i = 0; i < g.dx.size(); ++i) g.dx[i] += before[i];
    return {reference.Forward(), g.dx, g.d_weights};
  }

  int64_t rows, width;
  std::vector<float> x, weights, dy = NormalValues(rows * width, 2), before = NormalValues(std::ssize(x), 4);
  double y_magnitude = 4 * static_cast<double>(weights.size()), dx_magnitude = 8, multiple = 2;
  double elements = static_cast<double>(rows * width);
};

struct ShiftScaleCase {
  ShiftScaleCase(int64_t rows, int64_t width, bool scaled, bool accumulate)
      : rows(rows), width(width), scaled(scaled), accumulate(accumulate), x(NormalValues(rows * width, 1)) {}

  Results<float> Run(int threads, bool in_place) const {
    const Stream stream = Stream::Cpu(threads);
    const std::vector<float> shift = {0.3f}, scale = {-1.7f};
    std::vector<float> d_shift = {5}, d_scale = {7}, partials(ShiftScalePartials(rows), NAN);
    StridedMatrix in(x, rows, width), over(x, rows, width), apart(dy, rows, width), gradient(dy, rows, width);
    StridedMatrix fresh(x, rows, width);
    StridedMatrix &y = in_place ? over : apart, &dx = in_place && !accumulate ? gradient : fresh;
    ShiftScaleForwardArgs forward = {.x = in_place ? over.view() : in.view(), .shift = Numbers(shift), .y = y.view()};
    ShiftScaleBackwardArgs backward = {.dy = gradient.view(), .shift = Numbers(shift), .accumulate = accumulate};
    backward.dx = dx.view(), backward.d_shift = Numbers(d_shift), backward.partials = Numbers(partials);
    if (scaled) {
      forward.scale = backward.scale = Numbers(scale);
      backward.x = in.view(), backward.d_scale = Numbers(d_scale);
    }
    ShiftScaleForward(stream, forward);
    ShiftScaleBackward(stream, backward);
    EXPECT_TRUE(y.guards_intact() && dx.guards_intact());
    return {y.dense(), dx.dense(), {d_shift[0], d_scale[0]}};
  }
  Results<double> Reference() const {
    const ShiftScaleReference reference = {Widen(x), {0.3f}, {scaled ? -1.7f : 1.0f}};
    ShiftScaleReference::Gradients g = reference.Backward(Widen(dy));
    for (size_t i = 0; accumulate && i < x.size(); ++i) g.dx[i] += x[i];
    return {reference.Forward(), g.dx, {g.d_shift[0] + 5, scaled ? g.d_scale[0] + 7 : 7}};
  }

  int64_t rows, width;
  bool scaled, accumulate;
  std::vector<float> x, dy = NormalValues(rows * width, 2);
  double y_magnitude = 4, dx_magnitude = 8, multiple = 2, elements = static_cast<double>(rows * width);
};

template <typename Case>
void ExpectReference(const Case& c) {
  SCOPED_TRACE(::testing::Message() << c.rows << " rows of " << c.width);
  const Results<float> found = c.Run(1, /*in_place=*/false);
  const Results<double> expected = c.Reference();
  EXPECT_TRUE(NearReference(found.y, expected.y, c.y_magnitude, c.multiple));
  EXPECT_TRUE(NearReference(found.dx, expected.dx, c.dx_magnitude, c.multiple));
  EXPECT_TRUE(NearReference(found.sums, expected.sums, 4 * std::sqrt(c.elements), 8));
  for (const int threads : {2, 3}) {
    const Results<float> other = c.Run(threads, /*in_place=*/true);
    EXPECT_TRUE(SameBits(other.y, found.y));
    EXPECT_TRUE(SameBits(other.dx, found.dx));
    EXPECT_TRUE(SameBits(other.sums, found.sums));
  }
}

TEST(HeadScaleTest, MatchesReferenceOnAnyNumberOfThreadsAndInPlace) {
  ForEachInstructionSet([] {
    for (const auto& [rows, heads, head_width] :
         {std::tuple(1, 1, 1), {5, 3, 7}, {33, 4, 16}, {70, 8, 9}, {64, 1, 65}, {31, 16, 4}}) {
      ExpectReference(HeadScaleCase(rows, heads, head_width));
    }
  });
}

// What NormFormer starts from: then it is Pre-LN with its norms.
TEST(HeadScaleTest, GainsOfOneChangeNoBit) {
  for (const auto& [rows, heads, head_width] : {std::tuple(5, 3, 7), {33, 4, 16}, {64, 1, 65}}) {
    HeadScaleCase c(rows, heads, head_width);
    c.gain.assign(heads, 1.0f);
    EXPECT_TRUE(SameBits(c.Run(1, false).y, c.x));
    EXPECT_TRUE(SameBits(c.Run(1, false).dx, c.dy));
  }
}

TEST(WeightedSumTest, MatchesReferenceOnAnyNumberOfThreads) {
  ForEachInstructionSet([] {
    for (const auto& [rows, width] : {std::pair(1, 1), {5, 21}, {33, 64}, {70, 72}, {64, 65}}) {
      for (const int terms : {1, 2, 5, 8, 13}) ExpectReference(WeightedSumCase(rows, width, terms));
    }
  });
}

// A weight of 1 among zeros picks its term.
TEST(WeightedSumTest, OneAmongZerosPicksItsTermBitForBit) {
  for (const int64_t picked : {0, 3, 6}) {
    WeightedSumCase c(5, 21, 7);
    c.weights.assign(7, 0.0f);
    c.weights[picked] = 1;
    const auto first = c.x.begin() + picked * 5 * 21;
    EXPECT_TRUE(SameBits(c.Run(1, false).y, {first, first + 5 * 21}));
  }
}

TEST(ShiftScaleTest, MatchesReferenceOnAnyNumberOfThreadsAndInPlace) {
  ForEachInstructionSet([] {
    for (const auto& [rows, width] : {std::pair(1, 1), {5, 21}, {33, 64}, {70, 72}, {64, 65}, {100, 200}}) {
      for (const bool scaled : {false, true}) {
        for (const bool accumulate : {false, true}) ExpectReference(ShiftScaleCase(rows, width, scaled, accumulate));
      }
    }
  });
}

TEST(ScalesAndSumsReferenceTest, GradientsMatchFiniteDifferences) {
  const std::vector<double> x = Widen(NormalValues(24, 1)), dy = Widen(NormalValues(24, 2));
  HeadScaleReference heads = {3, 8, x, {0.5, -2}};
  const auto of_heads = [&] { return Dot(dy, heads.Forward()); };
  EXPECT_TRUE(IsGradient(heads.x, of_heads, heads.Backward(dy).dx));
  EXPECT_TRUE(IsGradient(heads.gain, of_heads, heads.Backward(dy).d_gain));
  ShiftScaleReference scale = {x, {0.3}, {-1.7}};
  const auto of_scale = [&] { return Dot(dy, scale.Forward()); };
  EXPECT_TRUE(IsGradient(scale.x, of_scale, scale.Backward(dy).dx));
  EXPECT_TRUE(IsGradient(scale.shift, of_scale, scale.Backward(dy).d_shift));
  EXPECT_TRUE(IsGradient(scale.scale, of_scale, scale.Backward(dy).d_scale));
  WeightedSumReference sum = {x, {0.5, -2, 1}, 8};
  const std::vector<double> d_sum(dy.begin(), dy.begin() + 8);
  const auto of_sum = [&] { return Dot(d_sum, sum.Forward()); };
  EXPECT_TRUE(IsGradient(sum.x, of_sum, sum.Backward(d_sum).dx));
  EXPECT_TRUE(IsGradient(sum.weights, of_sum, sum.Backward(d_sum).d_weights));
}

}  // namespace
}  // namespace hadal::testing
