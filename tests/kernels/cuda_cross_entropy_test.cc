#include "kernels/cuda/operations.h"

#include <algorithm>
#include <cmath>

#include "gtest/gtest.h"
#include "tests/kernels/cross_entropy_conformance.h"
#include "tests/support/kernel_device.h"
#include "tests/support/random_inputs.h"

namespace hadal::testing {
namespace {

struct Variation {
  uint64_t seed;
  Placement place;
};
constexpr Variation kVariations[] = {{1, {}}, {2, {}}, {3, {1, 3}}, {4, {3, 5}}};

template <typename T>
CrossEntropyOutcome RunCrossEntropy(const CrossEntropyProblem& problem, int variation) {
  const auto& [seed, place] = kVariations[variation];
  KernelDevice device(seed);
  const int64_t rows = problem.rows(), vocabulary = problem.vocabulary();
  DeviceMatrixOf<T> logits(device, problem.logits, rows, vocabulary, place);
  DeviceVectorOf<int32_t> targets(device, problem.targets);
  DeviceVectorOf<float> scale(device, std::vector<float>{problem.gradient_scale}), loss(device, rows),
      nll(device, rows), hits(device, rows);
  CrossEntropyArgs args = {
      .logits = logits.view(), .label_smoothing = problem.label_smoothing, .z_loss = problem.z_loss};
  args.device_targets = targets.data();
  if (problem.gradient_scale != 0) args.device_gradient_scale = scale.data();
  args.loss = loss.view(), args.nll = nll.view(), args.hits = hits.view();
  cuda::CrossEntropy(device.stream(), args);
  EXPECT_TRUE(logits.guards_intact());
  return {logits.dense(), loss.Read(), nll.Read(), hits.Read()};
}

const CrossEntropyBackend kBackends[] = {
    {.name = "Float", .run = RunCrossEntropy<float>, .variations = std::size(kVariations), .stored = Rounded<float>},
    {.name = "BFloat16",
     .run = RunCrossEntropy<BFloat16>,
     .variations = std::size(kVariations),
     .stored = Rounded<BFloat16>,
     .roundoff = kBFloat16Roundoff}};
INSTANTIATE_TEST_SUITE_P(Cuda, CrossEntropyConformance, ::testing::ValuesIn(kBackends), BackendName());

// Only a device's batches have rows that are padding.
TEST(CudaCrossEntropyTest, PaddingRowsAreExactZeros) {
  for (const auto& backend : kBackends) {
    std::vector<float> z = NormalValues(3 * 77, 5);
    std::fill(z.begin() + 77, z.begin() + 154, NAN);
    const CrossEntropyOutcome outcome = backend.run({z, {4, -1, 5}, 0.1f}, 0);
    EXPECT_EQ(outcome.loss[1], 0.0f);
    EXPECT_EQ(outcome.nll[1], 0.0f);
    EXPECT_EQ(outcome.hits[1], 0.0f);
    for (int64_t v = 77; v < 154; ++v) EXPECT_EQ(outcome.logits[v], 0.0f);
    EXPECT_TRUE(std::isfinite(outcome.loss[0]) && std::isfinite(outcome.loss[2]));
  }
}

}  // namespace
}  // namespace hadal::testing
