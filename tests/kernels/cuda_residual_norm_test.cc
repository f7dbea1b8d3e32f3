// The residual connection's CUDA kernels against the double-precision reference, over the types that runs use.
#include "kernels/cuda/residual_norm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/kernel_device.h"
#include "tests/support/random_inputs.h"
#include "tests/support/residual_norm_reference.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {
namespace {

using cuda::BFloat16;

constexpr float kResidualGain = 1.75f, kBranchGain = 0.625f, kSkipGain = 1.5f, kLearnedGain = 0.375f;

// The stored types of a run (kernels/cuda/residual_norm.h).
template <typename R, typename C>
struct Types {
  using Residual = R;
  using Compute = C;
  static constexpr bool kRounds = !std::is_same_v<R, float> || !std::is_same_v<C, float>;
};

// Which optional fields a case gives.
struct Fields {
  bool branch = true, bias = false, skip = false, dropout = false, norm = true, d_sum = false;
  bool omega = false, gain = false;  // learned
};
constexpr Fields kFields[] = {
    {.branch = false, .d_sum = true},  // the norm alone, where the stream goes on beside it
    {.norm = false, .d_sum = true},
    {.bias = true, .dropout = true},  // DeepNorm in training
    {.bias = true, .skip = true, .dropout = true, .norm = false, .d_sum = true},
    {.bias = true, .skip = true, .dropout = true, .d_sum = true},
    {.bias = true, .dropout = true, .omega = true},                               // Admin
    {.bias = true, .dropout = true, .norm = false, .d_sum = true, .gain = true},  // ReZero
    {.norm = false, .d_sum = true, .omega = true, .gain = true},
};

// Values that the types hold exactly, so that the reference starts from the same numbers.
template <typename T>
struct Case {
  using Residual = typename T::Residual;
  using Compute = typename T::Compute;

  Case(int64_t rows, int64_t width, const Fields& f) : rows(rows), width(width), fields(f) {
    const int64_t n = rows * width;
    stream = Rounded<Residual>(NormalValues(n, 1)), branch = Rounded<Compute>(NormalValues(n, 2));
    skip = Rounded<Residual>(NormalValues(n, 3));
    bias = NormalValues(width, 4), scale = NormalValues(width, 5), shift = NormalValues(width, 6);
    d_normed = Rounded<Compute>(NormalValues(n, 7)), d_sum = Rounded<Residual>(NormalValues(n, 8));
    dropout = {{.seed = 0x123456789AB, .step = 2, .micro_batch = 1, .sublayer = 31},
               f.dropout ? Dropout::Threshold(0.2) : 0};
    reference = {.rows = rows, .width = width, .stream = Widen(stream)};
    if (f.branch)
      reference.branch = Widen(branch), reference.residual_gain = kResidualGain, reference.branch_gain = kBranchGain;
    omega = NormalValues(width, 9);
    if (f.omega) reference.learned_residual_gain = Widen(omega);
    if (f.gain) reference.learned_branch_gain = {kLearnedGain};
    if (f.bias) reference.bias = Widen(bias);
    if (f.skip) reference.skip = Widen(skip), reference.skip_gain = kSkipGain;
    if (f.norm) reference.scale = Widen(scale), reference.shift = Widen(shift);
    for (int64_t i = 0; f.dropout && i < n; ++i) reference.factors.push_back(DropoutFactor(dropout, i));
  }

  int64_t rows, width;
  Fields fields;
  Dropout dropout;
  std::vector<float> stream, branch, skip, bias, scale, shift, omega, d_normed, d_sum;
  ResidualNormReference reference;
};

struct ForwardResult {
  std::vector<float> sum, normed, mean, rstd;
};
struct BackwardResult {
  std::vector<float> d_stream, d_branch, d_skip, d_bias, d_scale, d_shift, d_omega, d_gain;
};

bool SameResults(const ForwardResult& a, const ForwardResult& b) {
  return SameBits(a.sum, b.sum) && SameBits(a.normed, b.normed) && SameBits(a.mean, b.mean) && SameBits(a.rstd, b.rstd);
}
bool SameResults(const BackwardResult& a, const BackwardResult& b) {
  return SameBits(a.d_stream, b.d_stream) && SameBits(a.d_branch, b.d_branch) && SameBits(a.d_skip, b.d_skip) &&
         SameBits(a.d_bias, b.d_bias) && SameBits(a.d_scale, b.d_scale) && SameBits(a.d_shift, b.d_shift) &&
         SameBits(a.d_omega, b.d_omega) && SameBits(a.d_gain, b.d_gain);
}

template <typename T>
ForwardResult Forward(const Case<T>& c, Placement place, uint64_t seed, bool keep_sum = true) {
  using Residual = typename T::Residual;
  using Compute = typename T::Compute;
  KernelDevice device(seed);
  const Fields& f = c.fields;
  const std::vector<float> blank(c.rows * c.width, NAN);
  DeviceMatrixOf<Residual> stream(device, c.stream, c.rows, c.width, place),
      skip(device, c.skip, c.rows, c.width, place);
  DeviceMatrixOf<Residual> sum(device, blank, c.rows, c.width, place);
  DeviceMatrixOf<Compute> branch(device, c.branch, c.rows, c.width, place),
      normed(device, blank, c.rows, c.width, place);
  DeviceVectorOf<float> bias(device, c.bias), scale(device, c.scale), shift(device, c.shift);
  DeviceVectorOf<float> mean(device, c.rows), rstd(device, c.rows), gain(device, std::vector<float>{kBranchGain});
  DeviceVectorOf<cuda::RandomPosition> position(device, {cuda::PositionOf(c.dropout)});
  DeviceVectorOf<float> omega(device, c.omega), learned(device, std::vector<float>{kLearnedGain});
  cuda::ResidualNormForwardArgs<Residual, Compute> args = {
      .rows = c.rows, .width = c.width, .residual_gain = kResidualGain, .branch_gain = gain.data()};
  args.stream = stream.view();
  if (f.branch) args.branch = branch.view();
  if (f.skip) args.skip = skip.view(), args.skip_gain = kSkipGain;
  if (f.bias) args.bias = bias.data();
  if (f.omega) args.learned_residual_gain = omega.data();
  if (f.gain) args.learned_branch_gain = learned.data();
  args.dropout = cuda::MakeDeviceDropout(c.dropout, position.data());
  if (keep_sum) args.sum = sum.view();
  if (f.norm) {
    args.scale = scale.data(), args.shift = shift.data(), args.normed = normed.view();
    args.mean = mean.data(), args.rstd = rstd.data();
  }
  cuda::ResidualNormForward(device.stream(), args);
  ForwardResult result;
  if (keep_sum) result.sum = sum.dense();
  if (f.norm) result.normed = normed.dense(), result.mean = mean.Read(), result.rstd = rstd.Read();
  EXPECT_TRUE(sum.guards_intact() && normed.guards_intact());
  return result;
}

// Sums start from the forward's inputs of the same shape, to show that they are added to.
template <typename T>
BackwardResult Backward(const Case<T>& c, const ForwardResult& forward, Placement place, uint64_t seed,
                        bool stream_gradient_over_d_sum = false) {
  using Residual = typename T::Residual;
  using Compute = typename T::Compute;
  KernelDevice device(seed);
  const Fields& f = c.fields;
  const std::vector<float> blank(c.rows * c.width, NAN);
  DeviceMatrixOf<Compute> d_normed(device, c.d_normed, c.rows, c.width, place),
      d_branch(device, blank, c.rows, c.width, place);
  DeviceMatrixOf<Residual> d_sum(device, c.d_sum, c.rows, c.width, place),
      d_stream(device, blank, c.rows, c.width, place);
  DeviceMatrixOf<Residual> sum(device, forward.sum, c.rows, c.width, place);
  DeviceMatrixOf<float> d_skip(device, c.skip, c.rows, c.width, place);
  DeviceVectorOf<float> mean(device, forward.mean), rstd(device, forward.rstd), scale(device, c.scale);
  DeviceVectorOf<float> d_bias(device, c.bias), d_scale(device, c.scale), d_shift(device, c.shift);
  DeviceVectorOf<float> partials(device, cuda::ResidualNormPartials(c.rows, c.width));
  DeviceVectorOf<float> gain(device, std::vector<float>{kBranchGain});
  DeviceVectorOf<cuda::RandomPosition> position(device, {cuda::PositionOf(c.dropout)});
  DeviceVectorOf<float> omega(device, c.omega), learned(device, std::vector<float>{kLearnedGain});
  DeviceMatrixOf<Residual>& target = stream_gradient_over_d_sum ? d_sum : d_stream;
  cuda::ResidualNormBackwardArgs<Residual, Compute> args = {
      .rows = c.rows, .width = c.width, .residual_gain = kResidualGain, .branch_gain = gain.data()};
  args.dropout = cuda::MakeDeviceDropout(c.dropout, position.data());
  args.d_stream = target.view(), args.partials = partials.data();
  if (f.norm) {
    args.d_normed = d_normed.view(), args.sum = sum.view();
    args.mean = mean.data(), args.rstd = rstd.data(), args.scale = scale.data();
    args.d_scale = d_scale.data(), args.d_shift = d_shift.data();
  }
  if (f.d_sum) args.d_sum = d_sum.view();
  if (f.branch) args.d_branch = d_branch.view();
  if (f.skip) args.d_skip = d_skip.view(), args.skip_gain = kSkipGain;
  if (f.bias) args.d_bias = d_bias.data();
  DeviceMatrixOf<Residual> stream(device, c.stream, c.rows, c.width, place);
  DeviceMatrixOf<Compute> branch(device, c.branch, c.rows, c.width, place);
  DeviceVectorOf<float> bias(device, c.bias), d_omega(device, c.omega),
      d_gain(device, std::vector<float>{kLearnedGain});
  if (f.omega) {
    args.stream = stream.view(), args.learned_residual_gain = omega.data();
    args.d_learned_residual_gain = d_omega.data();
  }
  if (f.gain) {
    args.branch = branch.view(), args.learned_branch_gain = learned.data();
    args.d_learned_branch_gain = d_gain.data();
    if (f.bias) args.bias = bias.data();
  }
  cuda::ResidualNormBackward(device.stream(), args);
  BackwardResult result = {.d_stream = target.dense()};
  if (f.branch) result.d_branch = d_branch.dense();
  if (f.skip) result.d_skip = d_skip.dense();
  if (f.bias) result.d_bias = d_bias.Read();
  if (f.omega) result.d_omega = d_omega.Read();
  if (f.gain) result.d_gain = d_gain.Read();
  if (f.norm) result.d_scale = d_scale.Read(), result.d_shift = d_shift.Read();
  EXPECT_TRUE(target.guards_intact() && d_branch.guards_intact() && d_skip.guards_intact());
  return result;
}

template <typename T>
class CudaResidualNormTest : public ::testing::Test {
 protected:
  // Units of 2^-24 that a result may be off, where it comes from stored values of the types.
  static double Multiple(double fp32) { return T::kRounds ? 0x1p16 * 2 : fp32; }

  // Runs `check` over ragged shapes (one column, a warp's columns, more than a block of teams), places, and
  // combinations of fields.
  template <typename Check>
  static void ForEachCase(const Check& check) {
    struct Shape {
      int64_t rows, width;
    };
    for (const Shape& s : {Shape{1, 1}, {5, 3}, {33, 16}, {40, 63}, {21, 264}, {9, 520}, {3, 2056}}) {
      for (const Fields& fields : kFields) {
        for (const Placement& place : {Placement{}, Placement{1, 3}}) {
          if (s.width % 8 != 0 && place.offset == 0) continue;  // single accesses either way
          SCOPED_TRACE(::testing::Message()
                       << s.rows << " x " << s.width << ", branch " << fields.branch << ", bias " << fields.bias
                       << ", skip " << fields.skip << ", dropout " << fields.dropout << ", norm " << fields.norm
                       << ", omega " << fields.omega << ", gain " << fields.gain << ", offset " << place.offset);
          check(Case<T>(s.rows, s.width, fields), place);
        }
      }
    }
  }
};
using AllTypes = ::testing::Types<Types<float, float>, Types<BFloat16, BFloat16>, Types<float, BFloat16>>;
TYPED_TEST_SUITE(CudaResidualNormTest, AllTypes);

TYPED_TEST(CudaResidualNormTest, ForwardMatchesTheReference) {
  this->ForEachCase([&](const Case<TypeParam>& c, Placement place) {
    const ForwardResult got = Forward(c, place, 1);
    ResidualNormReference::Output expected = c.reference.Forward();
    EXPECT_TRUE(NearReference(got.sum, expected.sum, 4, this->Multiple(8)));
    if (!c.fields.norm) return;
    // The norm is judged by the sum that was stored: its rounding is not the norm's.
    ResidualNormReference of_stored = {.rows = c.rows, .width = c.width, .stream = Widen(got.sum)};
    of_stored.scale = Widen(c.scale), of_stored.shift = Widen(c.shift);
    expected = of_stored.Forward();
    const double rstd = std::max(1.0, *std::max_element(expected.rstd.begin(), expected.rstd.end()));
    EXPECT_TRUE(NearReference(got.normed, expected.normed, 4 * rstd, this->Multiple(16)));
    EXPECT_TRUE(NearReference(got.mean, expected.mean, 1, 16));
    EXPECT_TRUE(NearReference(got.rstd, expected.rstd, rstd * rstd, 16));
  });
}

TYPED_TEST(CudaResidualNormTest, BackwardMatchesTheReference) {
  this->ForEachCase([&](const Case<TypeParam>& c, Placement place) {
    const ForwardResult forward = Forward(c, place, 1);
    const BackwardResult got = Backward(c, forward, place, 1);
    // The gradient at the stored sum, then through the branch: the reference of the norm alone, and that of the branch
    // alone.
    const auto none = std::vector<double>();
    ResidualNormReference of_stored = {.rows = c.rows, .width = c.width, .stream = Widen(forward.sum)};
    if (c.fields.norm) of_stored.scale = Widen(c.scale), of_stored.shift = Widen(c.shift);
    const auto norm =
        of_stored.Backward(c.fields.norm ? Widen(c.d_normed) : none, c.fields.d_sum ? Widen(c.d_sum) : none);
    ResidualNormReference branch = c.reference;
    branch.scale.clear(), branch.shift.clear();
    auto g = branch.Backward(none, norm.d_stream);
    const auto add = [](std::vector<double>& to, const std::vector<float>& start) {
      for (size_t i = 0; i < to.size(); ++i) to[i] += start[i];
    };
    g.d_scale = norm.d_scale, g.d_shift = norm.d_shift;
    add(g.d_skip, c.skip), add(g.d_bias, c.bias), add(g.d_scale, c.scale), add(g.d_shift, c.shift);
    if (c.fields.omega) add(g.d_residual_gain, c.omega);
    if (c.fields.gain) add(g.d_branch_gain, {kLearnedGain});
    double rstd = 1;
    for (const float r : forward.rstd) rstd = std::max<double>(rstd, r);
    const double magnitude = 4 * rstd * rstd, over_rows = magnitude * std::sqrt(c.rows);
    EXPECT_TRUE(NearReference(got.d_stream, g.d_stream, magnitude, this->Multiple(16)));
    if (c.fields.branch) {
      EXPECT_TRUE(NearReference(got.d_branch, g.d_branch, magnitude, this->Multiple(16)));
    }
    if (c.fields.skip) {
      EXPECT_TRUE(NearReference(got.d_skip, g.d_skip, magnitude, 16));
    }
    if (c.fields.bias) {
      EXPECT_TRUE(NearReference(got.d_bias, g.d_bias, over_rows, 16));
    }
    if (c.fields.omega) {
      EXPECT_TRUE(NearReference(got.d_omega, g.d_residual_gain, over_rows, 16));
    }
    if (c.fields.gain) {
      EXPECT_TRUE(NearReference(got.d_gain, g.d_branch_gain, over_rows * std::sqrt(c.width), 16));
    }
    if (!c.fields.norm) return;
    EXPECT_TRUE(NearReference(got.d_scale, g.d_scale, over_rows, 16));
    EXPECT_TRUE(NearReference(got.d_shift, g.d_shift, over_rows, 16));
  });
}

// Another order of blocks and threads, and with it another place of every race, changes no bit; nor does an alias.
TYPED_TEST(CudaResidualNormTest, NoOrderAndNoAliasChangesABit) {
  this->ForEachCase([&](const Case<TypeParam>& c, Placement place) {
    if (c.width > 600 || (c.width % 8 == 0 && place.offset != 0)) return;
    const ForwardResult forward = Forward(c, place, 1);
    EXPECT_TRUE(SameResults(forward, Forward(c, place, 2)));
    const BackwardResult backward = Backward(c, forward, place, 1);
    EXPECT_TRUE(SameResults(backward, Backward(c, forward, place, 2, /*stream_gradient_over_d_sum=*/c.fields.d_sum)));
    if (!c.fields.norm) return;
    ForwardResult without_sum = forward;
    without_sum.sum.clear();
    EXPECT_TRUE(SameResults(without_sum, Forward(c, place, 3, /*keep_sum=*/false)));
  });
}

// Where rows are aligned, 16-byte accesses give the bits of single ones.
TYPED_TEST(CudaResidualNormTest, AlignmentChangesNoBit) {
  const Case<TypeParam> c(40, 520, {.bias = true, .skip = true, .dropout = true, .d_sum = true});
  const ForwardResult aligned = Forward(c, {}, 1);
  EXPECT_TRUE(SameResults(aligned, Forward(c, {1, 3}, 1)));
  EXPECT_TRUE(SameResults(Backward(c, aligned, {}, 1), Backward(c, aligned, {1, 3}, 1)));
}

// What lets a chunk start anywhere: the norm that rode along with a residual add equals the norm run alone on its
// stored sum.
TYPED_TEST(CudaResidualNormTest, NormAloneOnTheSumHasTheSameBits) {
  for (const int64_t width : {1, 17, 64, 512}) {
    const Case<TypeParam> c(21, width, {.bias = true, .skip = true, .dropout = true});
    const ForwardResult fused = Forward(c, {}, 1);
    Case<TypeParam> alone(21, width, {.branch = false});
    alone.stream = fused.sum;
    EXPECT_TRUE(SameResults(fused, Forward(alone, {}, 2)));
  }
}

// An fp32 run on a GPU and on a CPU draw the same masks: dropped elements are exactly those of random.h.
TEST(CudaResidualNormDropoutTest, MasksAreThoseOfRandomH) {
  Case<Types<float, float>> c(6, 24, {.dropout = true, .norm = false, .d_sum = true});
  std::fill(c.branch.begin(), c.branch.end(), 1.0f);
  std::fill(c.stream.begin(), c.stream.end(), 0.0f);
  const std::vector<float> sum = Forward(c, {}, 1).sum;
  for (int64_t i = 0; i < c.rows * c.width; ++i) EXPECT_EQ(sum[i], kBranchGain * DropoutFactor(c.dropout, i)) << i;
}

// Few rows in small blocks, so that every multiprocessor has some; many in large ones, so that their sums are little
// traffic.
static_assert(cuda::DeviceRowBlock(1) == 16 && cuda::DeviceRowBlock(8192) == 16);
static_assert(cuda::DeviceRowBlock(8193) == 32 && cuda::DeviceRowBlock(32 * 1584) == 32);
static_assert(cuda::DeviceRowBlock(32 * 1584 + 1) == 40 && cuda::DeviceRowBlock(262144) == 168);

TEST(CudaResidualNormBlocksTest, EveryRowOfManyBlocksIsInTheSums) {
  constexpr int64_t kRows = 8200, kWidth = 2;
  KernelDevice device(/*seed=*/1);
  const std::vector<float> d_sum = NormalValues(kRows * kWidth, 1);
  DeviceMatrixOf<float> gradient(device, d_sum, kRows, kWidth, {}), d_stream(device, d_sum, kRows, kWidth, {}),
      d_branch(device, d_sum, kRows, kWidth, {});
  DeviceVectorOf<float> d_bias(device, std::vector<float>{1, 2});
  DeviceVectorOf<float> partials(device, cuda::ResidualNormPartials(kRows, kWidth));
  cuda::ResidualNormBackwardArgs<float, float> args = {.rows = kRows, .width = kWidth};
  args.d_sum = gradient.view(), args.d_stream = d_stream.view(), args.d_branch = d_branch.view();
  args.d_bias = d_bias.data(), args.partials = partials.data();
  cuda::ResidualNormBackward(device.stream(), args);
  std::vector<double> expected = {1, 2};
  for (int64_t i = 0; i < kRows * kWidth; ++i) expected[i % kWidth] += d_sum[i];
  EXPECT_TRUE(NearReference(d_bias.Read(), expected, std::sqrt(kRows), 16));
}

}  // namespace
}  // namespace hadal::testing
