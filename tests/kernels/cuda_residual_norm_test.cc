#include "kernels/cuda/residual_norm.h"

#include <cmath>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/dropout.h"
#include "tests/kernels/residual_norm_conformance.h"
#include "tests/support/kernel_device.h"
#include "tests/support/random_inputs.h"

namespace hadal::testing {
namespace {

using Case = ResidualNormCase;
using ForwardResult = ResidualNormForwardResult;
using BackwardResult = ResidualNormBackwardResult;

struct Variation {
  uint64_t seed;  // another order of blocks and threads, and with it another place of every race
  Placement place;
};
constexpr Variation kVariations[] = {{1, {}}, {2, {}}, {3, {1, 3}}};

// Null where the stored types differ: neither matrix can lie over the other then.
template <typename T, typename Other>
const DeviceMatrixOf<T>* As(const DeviceMatrixOf<Other>& matrix) {
  if constexpr (std::is_same_v<T, Other>) {
    return &matrix;
  } else {
    return nullptr;
  }
}

// Vectors and scalars that both directions read.
struct Parameters {
  Parameters(KernelDevice& device, const Case& c)
      : bias(device, c.bias),
        scale(device, c.scale),
        shift(device, c.shift),
        learned_residual(device, c.learned_residual),
        learned_branch(device, c.learned_branch),
        branch_gain(device, std::vector<float>{Case::kBranchGain}),
        position(device, {cuda::PositionOf(c.dropout)}) {}

  // What forward and backward take alike.
  template <typename Args>
  Args ArgsOf(const Case& c) const {
    Args args;
    args.residual_gain = Case::kResidualGain, args.device_branch_gain = branch_gain.data();
    if (c.fields.skip) args.skip_gain = Case::kSkipGain;
    if (c.fields.learned_residual) args.learned_residual_gain = learned_residual.view();
    if (c.fields.learned_branch) args.learned_branch_gain = learned_branch.view();
    if (c.fields.norm) args.scale = scale.view();
    if (c.fields.norm_gain) args.norm_gain = Case::kNormGain;
    args.dropout = c.dropout, args.dropout.device_position = position.data();
    args.second_gain = Case::kSecondGain;
    return args;
  }

  DeviceVectorOf<float> bias, scale, shift, learned_residual, learned_branch, branch_gain;
  DeviceVectorOf<cuda::RandomPosition> position;
};

template <typename Residual, typename Compute>
ForwardResult Forward(const Case& c, int variation, SumPlace sum_place) {
  const auto& [seed, place] = kVariations[variation];
  KernelDevice device(seed);
  const ResidualNormFields& f = c.fields;
  const std::vector<float> blank(c.rows * c.width, NAN);
  const Parameters parameters(device, c);
  const DeviceMatrixOf<Residual> residual(device, c.residual, c.rows, c.width, place);
  const DeviceMatrixOf<Residual> skip(device, c.skip, c.rows, c.width, place);
  const DeviceMatrixOf<Residual> own(device, blank, c.rows, c.width, place);
  const DeviceMatrixOf<Compute> branch(device, c.branch, c.rows, c.width, place);
  const DeviceMatrixOf<Compute> normed(device, blank, c.rows, c.width, place);
  const DeviceVectorOf<float> mean(device, c.rows), rstd(device, c.rows);
  const DeviceMatrixOf<float> second(device, c.second, c.rows, c.width, place),
      other(device, blank, c.rows, c.width, place);
  const DeviceMatrixOf<float>& second_sum = sum_place == SumPlace::kOwn ? other : second;
  const DeviceMatrixOf<Residual>& sum = sum_place == SumPlace::kOverResidual ? residual
                                        : sum_place == SumPlace::kOverBranch ? *As<Residual>(branch)
                                                                             : own;
  auto args = parameters.ArgsOf<ResidualNormForwardArgs>(c);
  args.residual = residual.view();
  if (f.branch) args.branch = branch.view();
  if (f.skip) args.skip = skip.view();
  if (f.bias) args.bias = parameters.bias.view();
  if (f.second) args.second = second.view();
  if (f.second || f.second_starts) args.second_sum = second_sum.view();
  if (sum_place != SumPlace::kLeftOut) args.sum = sum.view();
  if (f.norm) {
    args.shift = parameters.shift.view(), args.normed = normed.view();
    args.mean = mean.view(), args.rstd = rstd.view();
  }
  cuda::ResidualNormForward(device.stream(), args);
  ForwardResult result;
  if (sum_place != SumPlace::kLeftOut) result.sum = sum.dense();
  if (f.norm) result.normed = normed.dense(), result.mean = mean.Read(), result.rstd = rstd.Read();
  if (f.second || f.second_starts) result.second = second_sum.dense();
  EXPECT_TRUE(sum.guards_intact() && normed.guards_intact() && second_sum.guards_intact());
  return result;
}

// The sums over rows, which start from the parameters.
struct Sums {
  Sums(KernelDevice& device, const Case& c)
      : d_bias(device, c.bias),
        d_scale(device, c.scale),
        d_shift(device, c.shift),
        d_learned_residual(device, c.learned_residual),
        d_learned_branch(device, c.learned_branch) {}

  template <typename Args>
  void Give(const ResidualNormFields& f, Args& args) const {
    if (f.bias) args.d_bias = d_bias.view();
    if (f.norm) args.d_scale = d_scale.view(), args.d_shift = d_shift.view();
    if (f.learned_residual) args.d_learned_residual_gain = d_learned_residual.view();
    if (f.learned_branch) args.d_learned_branch_gain = d_learned_branch.view();
  }
  BackwardResult Read(const ResidualNormFields& f) const {
    BackwardResult result;
    if (f.bias) result.d_bias = d_bias.Read();
    if (f.norm) result.d_scale = d_scale.Read(), result.d_shift = d_shift.Read();
    if (f.learned_residual) result.d_learned_residual = d_learned_residual.Read();
    if (f.learned_branch) result.d_learned_branch = d_learned_branch.Read();
    return result;
  }

  DeviceVectorOf<float> d_bias, d_scale, d_shift, d_learned_residual, d_learned_branch;
};

// What a backward reads of the forward.
template <typename Residual, typename Compute>
struct Kept {
  Kept(KernelDevice& device, const Case& c, const ForwardResult& forward, Placement place)
      : residual(device, c.residual, c.rows, c.width, place),
        sum(device, forward.sum, c.rows, c.width, place),
        branch(device, c.branch, c.rows, c.width, place),
        mean(device, forward.mean),
        rstd(device, forward.rstd) {}

  void Give(const Case& c, const Parameters& parameters, ResidualNormBackwardArgs& args) const {
    if (c.fields.norm) args.sum = sum.view(), args.mean = mean.view(), args.rstd = rstd.view();
    if (c.fields.learned_residual) args.residual = residual.view();
    if (c.fields.learned_branch) args.branch = branch.view();
    if (c.fields.learned_branch && c.fields.bias) args.bias = parameters.bias.view();
  }

  DeviceMatrixOf<Residual> residual, sum;
  DeviceMatrixOf<Compute> branch;
  DeviceVectorOf<float> mean, rstd;
};

template <typename Residual, typename Compute>
BackwardResult Backward(const Case& c, const ForwardResult& forward, int variation,
                        ResidualGradientPlace residual_place) {
  const auto& [seed, place] = kVariations[variation];
  KernelDevice device(seed);
  const ResidualNormFields& f = c.fields;
  const std::vector<float> blank(c.rows * c.width, NAN);
  const Parameters parameters(device, c);
  const Sums sums(device, c);
  const Kept<Residual, Compute> kept(device, c, forward, place);
  const DeviceMatrixOf<Compute> d_normed(device, c.d_normed, c.rows, c.width, place);
  const DeviceMatrixOf<Compute> d_branch(device, blank, c.rows, c.width, place);
  const DeviceMatrixOf<Residual> d_sum(device, c.d_sum, c.rows, c.width, place);
  const DeviceMatrixOf<Residual> own(device, blank, c.rows, c.width, place);
  const DeviceMatrixOf<float> d_skip(device, c.skip, c.rows, c.width, place),
      d_second(device, c.d_second, c.rows, c.width, place);
  const DeviceVectorOf<float> partials(device, cuda::ResidualNormPartials(c.rows, c.width));
  const DeviceMatrixOf<Residual>& d_residual = residual_place == ResidualGradientPlace::kOverDNormed
                                                   ? *As<Residual>(d_normed)
                                               : residual_place == ResidualGradientPlace::kOverDSum ? d_sum
                                                                                                    : own;
  auto args = parameters.ArgsOf<ResidualNormBackwardArgs>(c);
  kept.Give(c, parameters, args);
  sums.Give(f, args);
  args.d_residual = d_residual.view(), args.partials = partials.view();
  if (f.norm) args.d_normed = d_normed.view();
  if (f.d_sum) args.d_sum = d_sum.view();
  if (f.branch) args.d_branch = d_branch.view();
  if (f.skip) args.d_skip = d_skip.view();
  if (f.second || f.second_starts) args.d_second = d_second.view(), args.second_starts = f.second_starts;
  cuda::ResidualNormBackward(device.stream(), args);
  BackwardResult result = sums.Read(f);
  result.d_residual = d_residual.dense();
  if (f.branch) result.d_branch = d_branch.dense();
  if (f.skip) result.d_skip = d_skip.dense();
  EXPECT_TRUE(d_residual.guards_intact() && d_branch.guards_intact() && d_skip.guards_intact());
  return result;
}

// The stored types of a run (kernels/cuda/residual_norm.h).
template <typename Residual, typename Compute>
ResidualNormBackend Backend(const char* name) {
  return {.name = name,
          .run_forward = Forward<Residual, Compute>,
          .run_backward = Backward<Residual, Compute>,
          .variations = std::size(kVariations),
          .stored_residual = Rounded<Residual>,
          .stored_product = Rounded<Compute>,
          .residual_roundoff = std::is_same_v<Residual, float> ? 0 : kBFloat16Roundoff,
          .product_roundoff = std::is_same_v<Compute, float> ? 0 : kBFloat16Roundoff};
}
INSTANTIATE_TEST_SUITE_P(Cuda, ResidualNormConformance,
                         ::testing::Values(Backend<float, float>("Float"), Backend<BFloat16, BFloat16>("BFloat16"),
                                           Backend<float, BFloat16>("BFloat16BesideAFloatStream")),
                         ResidualNormBackendName);

// Few rows in small blocks, so that every multiprocessor has some; many in large ones, so that their sums are little
// traffic.
static_assert(cuda::DeviceRowBlock(1) == 16 && cuda::DeviceRowBlock(4096) == 16);
static_assert(cuda::DeviceRowBlock(4097) == 28 && cuda::DeviceRowBlock(8192) == 28);
static_assert(cuda::DeviceRowBlock(8193) == 32 && cuda::DeviceRowBlock(32 * 1584) == 32);
static_assert(cuda::DeviceRowBlock(32 * 1584 + 1) == 40 && cuda::DeviceRowBlock(262144) == 168);

TEST(CudaResidualNormBlocksTest, EveryRowOfManyBlocksIsInTheSums) {
  constexpr int64_t kRows = 8200, kWidth = 2;
  KernelDevice device(/*seed=*/1);
  const std::vector<float> d_sum = NormalValues(kRows * kWidth, 1);
  DeviceMatrixOf<float> gradient(device, d_sum, kRows, kWidth, {}), d_residual(device, d_sum, kRows, kWidth, {}),
      d_branch(device, d_sum, kRows, kWidth, {});
  DeviceVectorOf<float> d_bias(device, std::vector<float>{1, 2});
  DeviceVectorOf<float> partials(device, cuda::ResidualNormPartials(kRows, kWidth));
  ResidualNormBackwardArgs args;
  args.d_sum = gradient.view(), args.d_residual = d_residual.view(), args.d_branch = d_branch.view();
  args.d_bias = d_bias.view(), args.partials = partials.view();
  cuda::ResidualNormBackward(device.stream(), args);
  std::vector<double> expected = {1, 2};
  for (int64_t i = 0; i < kRows * kWidth; ++i) expected[i % kWidth] += d_sum[i];
  EXPECT_TRUE(NearReference(d_bias.Read(), expected, std::sqrt(kRows), 16));
}

// The gradient of a skip is fp32 and joins a bf16 stream's gradient, rounded once.
TEST(CudaResidualNormTypesTest, AnFp32BranchJoinsABf16Stream) {
  constexpr int64_t kRows = 5;
  for (const int64_t width : {16, 7}) {
    for (const bool learned : {false, true}) {
      KernelDevice device(/*seed=*/1);
      const std::vector<float> stream = Rounded<BFloat16>(NormalValues(kRows * width, 1)),
                               branch = NormalValues(kRows * width, 2), gain = NormalValues(width, 3);
      const DeviceMatrixOf<BFloat16> residual(device, stream, kRows, width, {}), sum(device, stream, kRows, width, {});
      const DeviceMatrixOf<float> added(device, branch, kRows, width, {});
      const DeviceVectorOf<float> gains(device, gain);
      ResidualNormForwardArgs args = {.residual = residual.view(), .branch = added.view(), .sum = sum.view()};
      if (learned) args.learned_residual_gain = gains.view();
      cuda::ResidualNormForward(device.stream(), args);
      std::vector<float> expected;
      for (int64_t i = 0; i < kRows * width; ++i) {
        expected.push_back((learned ? stream[i] * gain[i % width] : stream[i]) + branch[i]);
      }
      EXPECT_EQ(sum.dense(), Rounded<BFloat16>(expected)) << width << (learned ? ", learned" : "");
    }
  }
}

}  // namespace
}  // namespace hadal::testing
