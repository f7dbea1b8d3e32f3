// Operations with a few learned numbers: a gain for each head, a shift and a scale, the weights of a sum. Each beside
// its reference, on every instruction set; no number of threads and no place of an output changes a bit.

#include "runtime/stream.h"
#include "tests/kernels/scales_and_sums_run.h"

#include "tests/support/each_instruction_set.h"
#include "tests/support/finite_difference.h"

namespace hadal::testing {
namespace {

class Lab {
 public:
  explicit Lab(int threads = 1) : stream_(Stream::Cpu(threads)) {}
  template <typename T>
  StridedMatrix Matrix(const std::vector<float>& values, int64_t columns) const {
    return {values, std::ssize(values) / columns, columns};
  }
  HostVector Vector(const std::vector<float>& values) const { return {values}; }
  void Run(const HeadNormForwardArgs& args) const { HeadNormForward(stream_, args); }
  void Run(const HeadNormBackwardArgs& args) const { HeadNormBackward(stream_, args); }
  void Run(const HeadScaleForwardArgs& args) const { HeadScaleForward(stream_, args); }
  void Run(const HeadScaleBackwardArgs& args) const { HeadScaleBackward(stream_, args); }
  void Run(const ShiftScaleForwardArgs& args) const { ShiftScaleForward(stream_, args); }
  void Run(const ShiftScaleBackwardArgs& args) const { ShiftScaleBackward(stream_, args); }
  void Run(const WeightedSumForwardArgs& args) const { WeightedSumForward(stream_, args); }
  void Run(const WeightedSumBackwardArgs& args) const { WeightedSumBackward(stream_, args); }

 private:
  Stream stream_;
};

template <typename Case>
void ExpectReference(const Case& c) {
  Lab two(2), three(3);
  testing::ExpectReference(c, Lab(), {&two, &three});
}

TEST(HeadScaleTest, MatchesReferenceOnAnyNumberOfThreadsAndInPlace) {
  ForEachInstructionSet([] {
    for (const auto& [rows, heads, head_width] :
         {std::tuple(1, 1, 1), {5, 3, 7}, {33, 4, 16}, {70, 8, 9}, {64, 1, 65}, {31, 16, 4}}) {
      ExpectReference(HeadScaleCase<float, float>(rows, heads, head_width));
    }
  });
}

TEST(HeadNormTest, MatchesReferenceOnAnyNumberOfThreadsAndInPlace) {
  ForEachInstructionSet([] {
    for (const auto& [rows, heads, head_width] :
         {std::tuple(1, 1, 1), {5, 3, 7}, {33, 4, 16}, {70, 2, 9}, {64, 1, 65}, {31, 16, 4}}) {
      for (const bool centred : {false, true}) ExpectReference(HeadNormCase<float>(centred, rows, heads, head_width));
    }
  });
}

// What NormFormer starts from: then it is Pre-LN with its norms.
TEST(HeadScaleTest, GainsOfOneChangeNoBit) {
  for (const auto& [rows, heads, head_width] : {std::tuple(5, 3, 7), {33, 4, 16}, {64, 1, 65}}) {
    HeadScaleCase<float, float> c(rows, heads, head_width);
    c.gain.assign(heads, 1.0f);
    EXPECT_TRUE(SameBits(c.Run(Lab(), false).y, c.x));
    EXPECT_TRUE(SameBits(c.Run(Lab(), false).dx, c.dy));
  }
}

TEST(WeightedSumTest, MatchesReferenceOnAnyNumberOfThreads) {
  ForEachInstructionSet([] {
    for (const auto& [rows, width] : {std::pair(1, 1), {5, 21}, {33, 64}, {70, 72}, {64, 65}}) {
      for (const int terms : {1, 2, 5, 8, 13}) ExpectReference(WeightedSumCase<float, float>(rows, width, terms));
    }
  });
}

// A weight of 1 among zeros picks its term.
TEST(WeightedSumTest, OneAmongZerosPicksItsTermBitForBit) {
  for (const int64_t picked : {0, 3, 6}) {
    WeightedSumCase<float, float> c(5, 21, 7);
    c.weights.assign(7, 0.0f);
    c.weights[picked] = 1;
    const auto first = c.x.begin() + picked * 5 * 21;
    EXPECT_TRUE(SameBits(c.Run(Lab(), false).y, {first, first + 5 * 21}));
  }
}

TEST(ShiftScaleTest, MatchesReferenceOnAnyNumberOfThreadsAndInPlace) {
  ForEachInstructionSet([] {
    for (const auto& [rows, width] : {std::pair(1, 1), {5, 21}, {33, 64}, {70, 72}, {64, 65}, {100, 200}}) {
      for (const bool scaled : {false, true}) {
        for (const bool accumulate : {false, true})
          ExpectReference(ShiftScaleCase<float, float>(rows, width, scaled, accumulate));
      }
    }
  });
}

// SumColumns (kernels/cpu/columns-inl.h), seen in d_shift: of one row, from 5 on.
TEST(ShiftScaleTest, AddsTheColumnsOfARowInTheirOrder) {
  ForEachInstructionSet([] {
    for (int64_t width = 1; width < 150; ++width) {
      const ShiftScaleCase<float, float> c(1, width, false, false);
      float sums[4][16] = {};
      for (int64_t i = 0; i < width; ++i) sums[i / 16 % 4][i % 16] += c.dy[i];
      for (int lane = 0; lane < 16; ++lane) {
        sums[0][lane] = (sums[0][lane] + sums[1][lane]) + (sums[2][lane] + sums[3][lane]);
      }
      for (int half = 8; half > 0; half /= 2) {
        for (int lane = 0; lane < half; ++lane) sums[0][lane] += sums[0][lane + half];
      }
      ASSERT_EQ(c.Run(Lab(), false).sums[0], 5 - sums[0][0]) << width;
    }
  });
}

TEST(ScalesAndSumsReferenceTest, GradientsMatchFiniteDifferences) {
  const std::vector<double> x = Widen(NormalValues(24, 1)), dy = Widen(NormalValues(24, 2));
  HeadScaleReference heads = {3, 8, x, {0.5, -2}};
  const auto of_heads = [&] { return Dot(dy, heads.Forward()); };
  EXPECT_TRUE(IsGradient(heads.x, of_heads, heads.Backward(dy).dx));
  EXPECT_TRUE(IsGradient(heads.gain, of_heads, heads.Backward(dy).d_gain));
  for (const bool centred : {false, true}) {
    HeadNormReference norm = {{.centred = centred, .epsilon = 1e-3f}, x, {0.5, -2, 1}, {0.1, 0.2, -1}};
    const auto of_norm = [&] { return Dot(dy, norm.Forward()); };
    EXPECT_TRUE(IsGradient(norm.x, of_norm, norm.Backward(dy).dx));
    EXPECT_TRUE(IsGradient(norm.scale, of_norm, norm.Backward(dy).d_scale));
    EXPECT_TRUE(IsGradient(norm.shift, of_norm, norm.Backward(dy).d_shift));
  }
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
