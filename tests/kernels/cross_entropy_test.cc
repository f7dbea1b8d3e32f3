#include "kernels/cross_entropy.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/cross_entropy_reference.h"
#include "tests/support/each_instruction_set.h"
#include "tests/support/random_inputs.h"

namespace hadal::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Outcome {
  std::vector<float> logits, loss, nll;
};

std::vector<int32_t> SomeTargets(int64_t rows, int64_t vocabulary) {
  std::vector<int32_t> targets(rows);
  for (int64_t i = 0; i < rows; ++i) targets[i] = static_cast<int32_t>((i * 7919 + vocabulary - 1) % vocabulary);
  return targets;
}

Outcome RunCrossEntropy(const Stream& stream, std::vector<float> logits, const std::vector<int32_t>& targets,
                        float smoothing, float gradient_scale) {
  const int64_t rows = static_cast<int64_t>(targets.size());
  Outcome outcome = {std::move(logits), std::vector<float>(rows), std::vector<float>(rows)};
  const int64_t vocabulary = static_cast<int64_t>(outcome.logits.size()) / rows;
  CrossEntropy(stream, {.logits = {outcome.logits.data(), rows, vocabulary},
                        .targets = {targets.data(), rows},
                        .label_smoothing = smoothing,
                        .gradient_scale = gradient_scale,
                        .loss = {outcome.loss.data(), rows},
                        .nll = {outcome.nll.data(), rows}});
  return outcome;
}

TEST(CrossEntropyReferenceTest, GradientAgreesWithFiniteDifferences) {
  constexpr int64_t kVocabulary = 11;
  const std::vector<float> values = NormalValues(2 * kVocabulary, 1, 2.0f);
  const std::vector<double> z(values.begin(), values.end());
  const std::vector<int32_t> targets = {4, 10};
  const auto result = CrossEntropyReference(z, kVocabulary, targets, 0.1, 1.0);
  constexpr double kStep = 1e-5;
  for (size_t e = 0; e < z.size(); ++e) {
    std::vector<double> up = z, down = z;
    up[e] += kStep;
    down[e] -= kStep;
    const size_t row = e / kVocabulary;
    const double slope = (CrossEntropyReference(up, kVocabulary, targets, 0.1, 1.0).loss[row] -
                          CrossEntropyReference(down, kVocabulary, targets, 0.1, 1.0).loss[row]) /
                         (2 * kStep);
    EXPECT_NEAR(result.d_logits[e], slope, 1e-8);
  }
}

TEST(CrossEntropyTest, MatchesTheReference) {
  ForEachInstructionSet([] {
    for (const int64_t vocabulary : {2, 5, 16, 17, 129, 1000, 8003}) {
      for (const float smoothing : {0.0f, 0.1f}) {
        SCOPED_TRACE(::testing::Message() << "vocabulary " << vocabulary << ", smoothing " << smoothing);
        constexpr int64_t kRows = 3;
        constexpr float kScale = 0.125f;
        const std::vector<float> z = NormalValues(kRows * vocabulary, 2, 4.0f);
        const std::vector<int32_t> targets = SomeTargets(kRows, vocabulary);
        const auto expected = CrossEntropyReference({z.begin(), z.end()}, vocabulary, targets, smoothing, kScale);
        const Outcome actual = RunCrossEntropy(Stream::Cpu(1), z, targets, smoothing, kScale);
        EXPECT_TRUE(NearReference(actual.nll, expected.nll, 8, 4));
        EXPECT_TRUE(NearReference(actual.loss, expected.loss, 8, 4));
        EXPECT_TRUE(NearReference(actual.logits, expected.d_logits, kScale / 8, 16));
      }
    }
  });
}

TEST(CrossEntropyTest, AVocabularyOfOneIsCertain) {
  const Outcome outcome = RunCrossEntropy(Stream::Cpu(1), {3.0f}, {0}, 0.0f, 1.0f);
  EXPECT_EQ(outcome.nll[0], 0.0f);
  EXPECT_EQ(outcome.logits[0], 0.0f);
}

TEST(CrossEntropyTest, LossAloneLeavesTheLogits) {
  const std::vector<float> z = NormalValues(3 * 100, 5);
  const std::vector<int32_t> targets = SomeTargets(3, 100);
  const Outcome alone = RunCrossEntropy(Stream::Cpu(1), z, targets, 0.1f, 0.0f);
  EXPECT_TRUE(SameBits(alone.logits, z));
  EXPECT_TRUE(SameBits(alone.loss, RunCrossEntropy(Stream::Cpu(1), z, targets, 0.1f, 1.0f).loss));
}

TEST(CrossEntropyTest, LargeLogitsStayFinite) {
  ForEachInstructionSet([] {
    for (const float size : {1e4f, 1e30f}) {
      std::vector<float> z = NormalValues(2 * 333, 6, size);
      const Outcome outcome = RunCrossEntropy(Stream::Cpu(1), z, {0, 332}, 0.1f, 1.0f);
      for (const float value : outcome.logits) EXPECT_TRUE(std::isfinite(value));
      for (const float value : outcome.loss) EXPECT_TRUE(std::isfinite(value));
    }
  });
}

TEST(CrossEntropyTest, ForbiddenLogitsHaveProbabilityZero) {
  ForEachInstructionSet([] {
    std::vector<float> z(200, -kInfinity);
    z[3] = z[150] = -5.0f;
    const Outcome outcome = RunCrossEntropy(Stream::Cpu(1), z, {3}, 0.0f, 1.0f);
    EXPECT_NEAR(outcome.nll[0], std::log(2.0), 1e-6);
    EXPECT_EQ(outcome.logits[0], 0.0f);
    EXPECT_NEAR(outcome.logits[3], -0.5f, 1e-6);
    EXPECT_NEAR(outcome.logits[150], 0.5f, 1e-6);
  });
}

TEST(CrossEntropyTest, ANotANumberShowsInItsRowOnly) {
  ForEachInstructionSet([] {
    for (const int64_t place : {0, 130, 512, 600}) {
      std::vector<float> z = NormalValues(2 * 601, 7);
      z[place] = std::numeric_limits<float>::quiet_NaN();
      const Outcome outcome = RunCrossEntropy(Stream::Cpu(1), z, {5, 6}, 0.1f, 1.0f);
      EXPECT_TRUE(std::isnan(outcome.loss[0])) << place;
      EXPECT_TRUE(std::isnan(outcome.nll[0])) << place;
      EXPECT_TRUE(std::isnan(outcome.logits[77])) << place;
      EXPECT_TRUE(std::isfinite(outcome.loss[1])) << place;
    }
  });
}

TEST(CrossEntropyTest, ThreadsAndNeighboursChangeNoBit) {
  constexpr int64_t kRows = 13, kVocabulary = 517;
  const std::vector<float> z = NormalValues(kRows * kVocabulary, 8, 3.0f);
  const std::vector<int32_t> targets = SomeTargets(kRows, kVocabulary);
  ForEachInstructionSet([&] {
    const Outcome expected = RunCrossEntropy(Stream::Cpu(1), z, targets, 0.1f, 0.5f);
    for (const int threads : {2, 3}) {
      const Outcome outcome = RunCrossEntropy(Stream::Cpu(threads), z, targets, 0.1f, 0.5f);
      EXPECT_TRUE(SameBits(outcome.logits, expected.logits));
      EXPECT_TRUE(SameBits(outcome.loss, expected.loss));
    }
    const std::vector<float> last(z.end() - kVocabulary, z.end());
    const Outcome alone = RunCrossEntropy(Stream::Cpu(1), last, {targets.back()}, 0.1f, 0.5f);
    EXPECT_EQ(alone.loss[0], expected.loss.back());
    EXPECT_TRUE(SameBits(alone.logits, {expected.logits.end() - kVocabulary, expected.logits.end()}));
  });
}

TEST(CrossEntropyTest, HonoursTheStride) {
  constexpr int64_t kRows = 2, kVocabulary = 19, kStride = 24;
  std::vector<float> z = NormalValues(kRows * kStride, 9);
  const std::vector<float> before = z;
  std::vector<int32_t> targets = {1, 18};
  std::vector<float> loss(kRows), nll(kRows);
  CrossEntropy(Stream::Cpu(1), {.logits = {z.data(), kRows, kVocabulary, kStride},
                                .targets = {targets.data(), kRows},
                                .gradient_scale = 1.0f,
                                .loss = {loss.data(), kRows},
                                .nll = {nll.data(), kRows}});
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t v = 0; v < kStride; ++v) {
      const bool padding = v >= kVocabulary;
      EXPECT_EQ(z[i * kStride + v] == before[i * kStride + v], padding) << i << ", " << v;
    }
  }
}

TEST(CrossEntropyDeathTest, RejectsATargetOutsideTheVocabulary) {
  EXPECT_DEATH(RunCrossEntropy(Stream::Cpu(1), std::vector<float>(10), {10}, 0.0f, 0.0f), "10 vs. 10");
}

}  // namespace
}  // namespace hadal::testing
