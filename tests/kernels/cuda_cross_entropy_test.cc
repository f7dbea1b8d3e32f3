#include "kernels/cuda/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/cross_entropy_reference.h"
#include "tests/support/kernel_device.h"
#include "tests/support/random_inputs.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {
namespace {

using cuda::BFloat16;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Outcome {
  std::vector<float> logits, loss, nll;
};

std::vector<int32_t> SomeTargets(int64_t rows, int64_t vocabulary) {
  std::vector<int32_t> targets(rows);
  for (int64_t i = 0; i < rows; ++i) targets[i] = static_cast<int32_t>((i * 7919 + vocabulary - 1) % vocabulary);
  return targets;
}

template <typename T>
class CudaCrossEntropyTest : public ::testing::Test {
 protected:
  static constexpr bool kRounds = !std::is_same_v<T, float>;

  // gradient_scale 0: loss only.
  static Outcome Run(const std::vector<float>& z, const std::vector<int32_t>& targets, float smoothing,
                     float gradient_scale, Placement place = {}, uint64_t seed = 1) {
    KernelDevice device(seed);
    const int64_t rows = static_cast<int64_t>(targets.size()), vocabulary = static_cast<int64_t>(z.size()) / rows;
    DeviceMatrixOf<T> logits(device, z, rows, vocabulary, place);
    DeviceVectorOf<int32_t> device_targets(device, targets);
    DeviceVectorOf<float> scale(device, std::vector<float>{gradient_scale}), loss(device, rows), nll(device, rows);
    cuda::CrossEntropyArgs<T> args = {.rows = rows, .vocabulary = vocabulary, .label_smoothing = smoothing};
    args.logits = logits.view(), args.targets = device_targets.data();
    if (gradient_scale != 0) args.gradient_scale = scale.data();
    args.loss = loss.data(), args.nll = nll.data();
    cuda::CrossEntropy(device.stream(), args);
    EXPECT_TRUE(logits.guards_intact());
    return {logits.dense(), loss.Read(), nll.Read()};
  }
};
using LogitTypes = ::testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(CudaCrossEntropyTest, LogitTypes);

TYPED_TEST(CudaCrossEntropyTest, MatchesTheReference) {
  for (const int64_t vocabulary : {2, 5, 8, 17, 136, 1000, 2049, 8003, 8008, 8195, 8200}) {
    for (const float smoothing : {0.0f, 0.1f}) {
      for (const Placement& place : {Placement{}, Placement{1, 3}}) {
        SCOPED_TRACE(::testing::Message() << "vocabulary " << vocabulary << ", smoothing " << smoothing);
        constexpr int64_t kRows = 3;
        constexpr float kScale = 0.125f;
        const std::vector<float> z = Rounded<TypeParam>(NormalValues(kRows * vocabulary, 2, 4.0f));
        const std::vector<int32_t> targets = SomeTargets(kRows, vocabulary);
        const auto expected = CrossEntropyReference(Widen(z), vocabulary, targets, smoothing, kScale);
        const Outcome actual = this->Run(z, targets, smoothing, kScale, place);
        EXPECT_TRUE(NearReference(actual.nll, expected.nll, 8, 4));
        EXPECT_TRUE(NearReference(actual.loss, expected.loss, 8, 4));
        EXPECT_TRUE(NearReference(actual.logits, expected.d_logits, kScale / 8, this->kRounds ? 0x1p16 : 16));
      }
    }
  }
}

TYPED_TEST(CudaCrossEntropyTest, OrderChangesNoBitAndAlignmentNone) {
  for (const int64_t vocabulary : {4104, 8200}) {  // blocks of 256 and of 1,024 threads
    const std::vector<float> z = NormalValues(2 * vocabulary, 8, 3.0f);
    const std::vector<int32_t> targets = SomeTargets(2, vocabulary);
    const Outcome expected = this->Run(z, targets, 0.1f, 0.5f);
    for (const Placement& place : {Placement{}, Placement{3, 5}}) {
      const Outcome other = this->Run(z, targets, 0.1f, 0.5f, place, /*seed=*/2);
      EXPECT_TRUE(SameBits(other.logits, expected.logits));
      EXPECT_TRUE(SameBits(other.loss, expected.loss));
      EXPECT_TRUE(SameBits(other.nll, expected.nll));
    }
  }
}

TYPED_TEST(CudaCrossEntropyTest, LossAloneLeavesTheLogits) {
  const std::vector<float> z = Rounded<TypeParam>(NormalValues(3 * 100, 5));
  const std::vector<int32_t> targets = SomeTargets(3, 100);
  const Outcome alone = this->Run(z, targets, 0.1f, 0.0f);
  EXPECT_TRUE(SameBits(alone.logits, z));
  EXPECT_TRUE(SameBits(alone.loss, this->Run(z, targets, 0.1f, 1.0f).loss));
}

TYPED_TEST(CudaCrossEntropyTest, AVocabularyOfOneIsCertain) {
  const Outcome outcome = this->Run({3.0f}, {0}, 0.0f, 1.0f);
  EXPECT_EQ(outcome.nll[0], 0.0f);
  EXPECT_EQ(outcome.logits[0], 0.0f);
}

TYPED_TEST(CudaCrossEntropyTest, PaddingRowsAreExactZeros) {
  std::vector<float> z = NormalValues(3 * 77, 5);
  std::fill(z.begin() + 77, z.begin() + 154, NAN);
  const Outcome outcome = this->Run(z, {4, -1, 5}, 0.1f, 1.0f);
  EXPECT_EQ(outcome.loss[1], 0.0f);
  EXPECT_EQ(outcome.nll[1], 0.0f);
  for (int64_t v = 77; v < 154; ++v) EXPECT_EQ(outcome.logits[v], 0.0f);
  EXPECT_TRUE(std::isfinite(outcome.loss[0]) && std::isfinite(outcome.loss[2]));
}

TYPED_TEST(CudaCrossEntropyTest, LargeLogitsStayFinite) {
  for (const float size : {1e4f, 1e30f}) {
    const Outcome outcome = this->Run(NormalValues(2 * 333, 6, size), {0, 332}, 0.1f, 1.0f);
    for (const float value : outcome.logits) EXPECT_TRUE(std::isfinite(value));
    for (const float value : outcome.loss) EXPECT_TRUE(std::isfinite(value));
  }
}

TYPED_TEST(CudaCrossEntropyTest, ForbiddenLogitsHaveProbabilityZero) {
  std::vector<float> z(2100, -kInfinity);
  z[3] = z[2050] = -5.0f;
  const Outcome outcome = this->Run(z, {3}, 0.0f, 1.0f);
  EXPECT_NEAR(outcome.nll[0], std::log(2.0), 1e-6);
  EXPECT_EQ(outcome.logits[0], 0.0f);
  EXPECT_NEAR(outcome.logits[3], -0.5f, 1e-6);
  EXPECT_NEAR(outcome.logits[2050], 0.5f, 1e-6);
}

TYPED_TEST(CudaCrossEntropyTest, ANotANumberShowsInItsRowOnly) {
  for (const int64_t place : {0, 130, 512, 600}) {
    std::vector<float> z = NormalValues(2 * 601, 7);
    z[place] = NAN;
    const Outcome outcome = this->Run(z, {5, 6}, 0.1f, 1.0f);
    EXPECT_TRUE(std::isnan(outcome.loss[0])) << place;
    EXPECT_TRUE(std::isnan(outcome.nll[0])) << place;
    EXPECT_TRUE(std::isnan(outcome.logits[77])) << place;
    EXPECT_TRUE(std::isfinite(outcome.loss[1])) << place;
  }
}

}  // namespace
}  // namespace hadal::testing
