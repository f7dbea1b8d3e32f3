#include "tests/kernels/residual_norm_conformance.h"

#include <algorithm>
#include <cmath>

#include "tests/support/random_inputs.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {
namespace {

using Fields = ResidualNormFields;
using Case = ResidualNormCase;
using ForwardResult = ResidualNormForwardResult;
using BackwardResult = ResidualNormBackwardResult;

constexpr Fields kCombinations[] = {
    {},                                              // post-norm, plain
    {.branch = false},                               // the norm alone
    {.branch = false, .d_sum = true},                // the norm alone, where the residual stream goes on beside it
    {.norm = false, .d_sum = true},                  // no norm
    {.bias = true, .dropout = true},                 // DeepNorm in training
    {.bias = true, .dropout = true, .d_sum = true},  // pre-norm in training
    {.bias = true, .dropout = true, .d_sum = true, .norm_gain = true},  // LayerNorm Scaling
    {.skip = true},                                                     // B2T
    {.bias = true, .skip = true, .dropout = true, .norm = false, .d_sum = true},
    {.bias = true, .skip = true, .dropout = true, .d_sum = true},
    {.bias = true, .dropout = true, .norm = false, .d_sum = true, .learned_branch = true},  // ReZero
    {.bias = true, .dropout = true, .learned_residual = true},                              // Admin
    {.norm = false, .d_sum = true, .learned_residual = true, .learned_branch = true},
    {.skip = true, .dropout = true, .d_sum = true, .learned_residual = true, .learned_branch = true},
    {.second_starts = true},                          // ResiDual's first sublayer
    {.bias = true, .dropout = true, .second = true},  // the others, in training
    {.bias = true, .skip = true, .dropout = true, .d_sum = true, .learned_branch = true, .second = true},
    {.bias = true, .dropout = true, .d_sum = true, .rms = true, .shift = false},  // Llama's block, pre-norm
    {.skip = true, .norm_gain = true, .rms = true},
    {.dropout = true, .shift = false},
};

struct Shape {
  int64_t rows, width;
};
// Ragged; widths around vector lengths, a warp's columns and what a team of threads holds, and past the dropout window;
// more rows than a block.
constexpr Shape kShapes[] = {{1, 1},   {5, 3},    {33, 16}, {40, 63},  {100, 64},
                             {64, 65}, {21, 264}, {9, 520}, {3, 1100}, {3, 2056}};

template <typename Check>
void ForEachCase(const ResidualNormBackend& backend, const Check& check) {
  for (const Shape& shape : kShapes) {
    for (const Fields& fields : kCombinations) {
      const Case c = MakeResidualNormCase(backend, shape.rows, shape.width, fields);
      SCOPED_TRACE(c);
      check(c);
    }
  }
}

void ExpectSameBits(const ForwardResult& a, const ForwardResult& b) {
  EXPECT_TRUE(SameBits(a.sum, b.sum));
  EXPECT_TRUE(SameBits(a.normed, b.normed));
  EXPECT_TRUE(SameBits(a.mean, b.mean));
  EXPECT_TRUE(SameBits(a.rstd, b.rstd));
  EXPECT_TRUE(SameBits(a.second, b.second));
}

void ExpectSameBits(const BackwardResult& a, const BackwardResult& b) {
  EXPECT_TRUE(SameBits(a.d_residual, b.d_residual));
  EXPECT_TRUE(SameBits(a.d_branch, b.d_branch));
  EXPECT_TRUE(SameBits(a.d_skip, b.d_skip));
  EXPECT_TRUE(SameBits(a.d_bias, b.d_bias));
  EXPECT_TRUE(SameBits(a.d_scale, b.d_scale));
  EXPECT_TRUE(SameBits(a.d_shift, b.d_shift));
  EXPECT_TRUE(SameBits(a.d_learned_residual, b.d_learned_residual));
  EXPECT_TRUE(SameBits(a.d_learned_branch, b.d_learned_branch));
}

// The norm alone on the sum that was stored: rounding of the sum is not the norm's fault.
ResidualNormReference NormOfStored(const Case& c, const ForwardResult& forward) {
  Case alone = c;
  alone.fields = {.branch = false, .norm = c.fields.norm, .norm_gain = c.fields.norm_gain};
  alone.fields.rms = c.fields.rms, alone.fields.shift = c.fields.shift;
  alone.residual = forward.sum;
  return ReferenceOf(alone);
}

double LargestRstd(const ForwardResult& forward) {
  double largest = 1;
  for (const float rstd : forward.rstd) largest = std::max<double>(largest, rstd);
  return largest;
}

// What `start` becomes when `gradient` is added; nothing where it is not given.
std::vector<double> AddedTo(bool given, const std::vector<float>& start, const std::vector<double>& gradient) {
  std::vector<double> sum;
  for (size_t i = 0; given && i < start.size(); ++i) sum.push_back(start[i] + gradient[i]);
  return sum;
}

// The gradient at the stored sum, then through the branch: the reference of the norm alone, and that of the branch
// alone.
ResidualNormReference::Gradients ExpectedGradients(const Case& c, const ForwardResult& forward) {
  const auto norm = NormOfStored(c, forward).Backward(ReferenceDNormed(c), ReferenceDSum(c));
  Case without_norm = c;
  without_norm.fields.norm = false;
  auto g = ReferenceOf(without_norm).Backward({}, norm.d_residual, ReferenceDSecond(c));
  const Fields& f = c.fields;
  g.d_skip = AddedTo(f.skip, c.skip, g.d_skip);
  g.d_bias = AddedTo(f.bias, c.bias, g.d_bias);
  g.d_scale = AddedTo(f.norm, c.scale, norm.d_scale);
  g.d_shift = AddedTo(f.norm && f.shift, c.shift, norm.d_shift);
  g.d_residual_gain = AddedTo(f.learned_residual, c.learned_residual, g.d_residual_gain);
  g.d_branch_gain = AddedTo(f.learned_branch, c.learned_branch, g.d_branch_gain);
  return g;
}

}  // namespace

std::span<const ResidualNormFields> ResidualNormCombinations() { return kCombinations; }

ResidualNormReference ReferenceOf(const Case& c) {
  const Fields& f = c.fields;
  ResidualNormReference reference = {.rows = c.rows, .width = c.width, .residual = Widen(c.residual)};
  if (f.branch) {
    reference.branch = Widen(c.branch);
    reference.residual_gain = Case::kResidualGain, reference.branch_gain = Case::kBranchGain;
  }
  if (f.bias) reference.bias = Widen(c.bias);
  if (f.skip) reference.skip = Widen(c.skip), reference.skip_gain = Case::kSkipGain;
  for (int64_t i = 0; f.dropout && i < c.rows * c.width; ++i) reference.factors.push_back(DropoutFactor(c.dropout, i));
  if (f.learned_residual) reference.learned_residual_gain = Widen(c.learned_residual);
  if (f.learned_branch) reference.learned_branch_gain = Widen(c.learned_branch);
  if (f.norm) reference.scale = Widen(c.scale);
  if (f.norm && f.shift) reference.shift = Widen(c.shift);
  if (f.rms) reference.centred = false, reference.epsilon = Case::kRmsEpsilon;
  if (f.norm_gain) reference.norm_gain = Case::kNormGain;
  reference.has_second = f.second || f.second_starts;
  if (reference.has_second) reference.second_gain = Case::kSecondGain;
  if (f.second) reference.second = Widen(c.second);
  return reference;
}

std::vector<double> ReferenceDNormed(const Case& c) {
  return c.fields.norm ? Widen(c.d_normed) : std::vector<double>();
}
std::vector<double> ReferenceDSum(const Case& c) { return c.fields.d_sum ? Widen(c.d_sum) : std::vector<double>(); }
std::vector<double> ReferenceDSecond(const Case& c) {
  return c.fields.second || c.fields.second_starts ? Widen(c.d_second) : std::vector<double>();
}

std::ostream& operator<<(std::ostream& out, const Case& c) {
  const Fields& f = c.fields;
  return out << c.rows << " x " << c.width << ", branch " << f.branch << ", bias " << f.bias << ", skip " << f.skip
             << ", dropout " << f.dropout << ", norm " << f.norm << ", d_sum " << f.d_sum << ", learned "
             << f.learned_residual << f.learned_branch << ", norm gain " << f.norm_gain << ", second " << f.second
             << f.second_starts << ", rms " << f.rms << ", shift " << f.shift;
}

Case MakeResidualNormCase(const ResidualNormBackend& backend, int64_t rows, int64_t width, const Fields& fields) {
  const auto stored = [&](float (*as)(float), uint32_t seed) {
    std::vector<float> values = NormalValues(rows * width, seed);
    for (float& x : values) x = as(x);
    return values;
  };
  const RandomCounter counter = {.seed = 0x123456789AB, .step = 2, .micro_batch = 1, .sublayer = 31};
  return {.rows = rows,
          .width = width,
          .fields = fields,
          .dropout = {counter, fields.dropout ? Dropout::Threshold(0.2) : 0},
          .residual = stored(backend.stored_residual, 1),
          .branch = stored(backend.stored_product, 2),
          .skip = stored(backend.stored_residual, 3),
          .d_normed = stored(backend.stored_product, 7),
          .d_sum = stored(backend.stored_residual, 8),
          .bias = NormalValues(width, 4),
          .scale = NormalValues(width, 5),
          .shift = NormalValues(width, 6),
          .learned_residual = NormalValues(width, 9),
          .learned_branch = {-0.375f},
          .second = NormalValues(rows * width, 10),
          .d_second = NormalValues(rows * width, 11)};
}

TEST_P(ResidualNormConformance, ForwardMatchesTheReference) {
  ForEachCase(GetParam(), [](const Case& c) {
    const ForwardResult got = Forward(c);
    const ResidualNormReference::Output streams = ReferenceOf(c).Forward();
    EXPECT_TRUE(NearReference(got.sum, streams.sum, 4, 8, GetParam().residual_roundoff));
    EXPECT_TRUE(NearReference(got.second, streams.second, 4, 8));
    const ResidualNormReference::Output expected = NormOfStored(c, got).Forward();
    const double rstd = LargestRstd(got);
    EXPECT_TRUE(NearReference(got.normed, expected.normed, 4 * rstd, 16, GetParam().product_roundoff));
    EXPECT_TRUE(NearReference(got.mean, expected.mean, 1, 8));
    EXPECT_TRUE(NearReference(got.rstd, expected.rstd, rstd * rstd, 16));
  });
}

TEST_P(ResidualNormConformance, BackwardMatchesTheReference) {
  ForEachCase(GetParam(), [](const Case& c) {
    const ForwardResult forward = Forward(c);
    const BackwardResult got = Backward(c, forward);
    const ResidualNormReference::Gradients g = ExpectedGradients(c, forward);
    // Rounding of h grows with rstd, and ds multiplies it by rstd again; sums over rows add up √rows of it.
    const double magnitude = 4 * LargestRstd(forward) * LargestRstd(forward);
    const double over_rows = magnitude * std::sqrt(c.rows);
    EXPECT_TRUE(NearReference(got.d_residual, g.d_residual, magnitude, 16, GetParam().residual_roundoff));
    EXPECT_TRUE(NearReference(got.d_branch, g.d_branch, magnitude, 16, GetParam().product_roundoff));
    EXPECT_TRUE(NearReference(got.d_skip, g.d_skip, magnitude, 16));
    EXPECT_TRUE(NearReference(got.d_bias, g.d_bias, over_rows, 16));
    EXPECT_TRUE(NearReference(got.d_scale, g.d_scale, over_rows, 16));
    EXPECT_TRUE(NearReference(got.d_shift, g.d_shift, over_rows, 16));
    EXPECT_TRUE(NearReference(got.d_learned_residual, g.d_residual_gain, over_rows, 16));
    EXPECT_TRUE(NearReference(got.d_learned_branch, g.d_branch_gain, over_rows * std::sqrt(c.width), 16));
  });
}

// Every second and third variation also lays an output over an input, where the case and the types let it.
void ResidualNormConformance::ExpectSameBitsEveryWay(const Case& c) {
  const bool one_type = GetParam().one_stored_type();
  const SumPlace over_branch = c.fields.branch && one_type ? SumPlace::kOverBranch : SumPlace::kOwn;
  const SumPlace sums[] = {SumPlace::kOwn, SumPlace::kOverResidual, over_branch};
  const ResidualGradientPlace gradients[] = {
      ResidualGradientPlace::kOwn, c.fields.d_sum ? ResidualGradientPlace::kOverDSum : ResidualGradientPlace::kOwn,
      c.fields.norm && one_type ? ResidualGradientPlace::kOverDNormed : ResidualGradientPlace::kOwn};
  const ForwardResult forward = Forward(c);
  const BackwardResult backward = Backward(c, forward);
  for (int variation = 1; variation < GetParam().variations; ++variation) {
    SCOPED_TRACE(variation);
    ExpectSameBits(forward, Forward(c, variation, sums[variation % 3]));
    ExpectSameBits(backward, Backward(c, forward, variation, gradients[variation % 3]));
  }
  if (!c.fields.norm) return;
  ForwardResult without_sum = forward;
  without_sum.sum.clear();
  ExpectSameBits(without_sum, Forward(c, GetParam().variations - 1, SumPlace::kLeftOut));
}

TEST_P(ResidualNormConformance, NoVariationAndNoAliasChangesABit) {
  ForEachCase(GetParam(), [](const Case& c) { ExpectSameBitsEveryWay(c); });
}

// Small enough for compute-sanitizer: a width that fills no vector.
TEST_P(ResidualNormConformance, AlignmentChangesNoBit) {
  ExpectSameBitsEveryWay(MakeCase(9, 70, {.bias = true, .skip = true, .dropout = true, .d_sum = true}));
}

// What lets a chunk start anywhere: the norm that rode along with a residual add equals the norm run alone on its
// stored sum.
TEST_P(ResidualNormConformance, NormAloneOnTheSumHasTheSameBits) {
  for (const int64_t width : {1, 17, 64, 512, 1100}) {
    const ForwardResult fused = Forward(MakeCase(33, width, {.bias = true, .skip = true, .dropout = true}));
    Case alone = MakeCase(33, width, {.branch = false});
    alone.residual = fused.sum;
    ExpectSameBits(fused, Forward(alone, GetParam().variations - 1));
  }
}

// A row of equal values has no variance: h = 0 and n = shift, exactly.
TEST_P(ResidualNormConformance, ConstantRowsAreShifted) {
  Case c = MakeCase(2, 16, {.branch = false});
  std::fill(c.residual.begin(), c.residual.end(), 3.0f);
  const ForwardResult got = Forward(c);
  for (int64_t i = 0; i < 2 * 16; ++i) EXPECT_EQ(got.normed[i], GetParam().stored_product(c.shift[i % 16])) << i;
  EXPECT_NEAR(got.rstd[1], 1 / std::sqrt(1e-5), 1e-3);
}

// Such a row is no row of zeros: the step is then left out, and the sublayer named.
TEST_P(ResidualNormConformance, ARowWhoseSquaresOverflowIsNotANumber) {
  Case c = MakeCase(2, 16, {.branch = false});
  for (int64_t i = 0; i < 16; ++i) c.residual[16 + i] = i % 2 == 0 ? 3e19f : -2e19f;
  const ForwardResult got = Forward(c);
  EXPECT_TRUE(std::isnan(got.normed[16])) << got.normed[16];
  EXPECT_FALSE(std::isnan(got.normed[0]));
}

}  // namespace hadal::testing
