#include "kernels/cuda/residual_norm.h"

#include <type_traits>

#include "gtest/gtest.h"
#include "kernels/cuda/dropout.h"
#include "tests/kernels/residual_norm_conformance.h"
#include "tests/kernels/residual_norm_run.h"
#include "tests/support/kernel_device.h"
#include "tests/support/random_inputs.h"

namespace hadal::testing {
namespace {

using Case = ResidualNormCase;

struct Variation {
  uint64_t seed;  // another order of blocks and threads, and with it another place of every race
  Placement place;
};
constexpr Variation kVariations[] = {{1, {}}, {2, {}}, {3, {1, 3}}};

template <typename Stored, typename Computed>
class Lab {
 public:
  using Numbers = DeviceVectorOf<float>;

  Lab(const Case& c, const Variation& variation)
      : rows_(c.rows),
        width_(c.width),
        place_(variation.place),
        device_(variation.seed),
        branch_gain_(device_, std::vector<float>{Case::kBranchGain}),
        position_(device_, {cuda::PositionOf(c.dropout)}) {}

  auto Residual(const std::vector<float>& values) { return Matrix<Stored>(values); }
  auto Product(const std::vector<float>& values) { return Matrix<Computed>(values); }
  auto Float(const std::vector<float>& values) { return Matrix<float>(values); }
  Numbers Vector(const std::vector<float>& values) { return {device_, values}; }
  template <typename Args>
  void Complete(Args& args) const {
    args.device_branch_gain = branch_gain_.data(), args.dropout.device_position = position_.data();
  }
  int64_t Partials() const { return cuda::ResidualNormPartials(rows_, width_); }
  void Forward(const ResidualNormForwardArgs& args) { cuda::ResidualNormForward(device_.stream(), args); }
  void Backward(const ResidualNormBackwardArgs& args) { cuda::ResidualNormBackward(device_.stream(), args); }

 private:
  template <typename T>
  DeviceMatrixOf<T> Matrix(const std::vector<float>& values) {
    return {device_, values, rows_, width_, place_};
  }

  int64_t rows_, width_;
  Placement place_;
  KernelDevice device_;
  DeviceVectorOf<float> branch_gain_;
  DeviceVectorOf<cuda::RandomPosition> position_;
};

// The stored types of a run (kernels/cuda/residual_norm.h).
template <typename Residual, typename Compute>
ResidualNormBackend Backend(const char* name) {
  return {.name = name,
          .run_forward =
              [](const Case& c, int variation, SumPlace place) {
                return RunResidualNormForward(Lab<Residual, Compute>(c, kVariations[variation]), c, place);
              },
          .run_backward =
              [](const Case& c, const ResidualNormForwardResult& forward, int variation, ResidualGradientPlace place) {
                return RunResidualNormBackward(Lab<Residual, Compute>(c, kVariations[variation]), c, forward, place);
              },
          .variations = std::size(kVariations),
          .stored_residual = Rounded<Residual>,
          .stored_product = Rounded<Compute>,
          .residual_roundoff = std::is_same_v<Residual, float> ? 0 : kBFloat16Roundoff,
          .product_roundoff = std::is_same_v<Compute, float> ? 0 : kBFloat16Roundoff};
}
INSTANTIATE_TEST_SUITE_P(Cuda, ResidualNormConformance,
                         ::testing::Values(Backend<float, float>("Float"), Backend<BFloat16, BFloat16>("BFloat16"),
                                           Backend<float, BFloat16>("BFloat16BesideAFloatStream")),
                         BackendName());

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
