#include "tests/kernels/cross_entropy_conformance.h"

#include <cmath>
#include <limits>

#include "tests/support/cross_entropy_reference.h"
#include "tests/support/random_inputs.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {
namespace {

using Problem = CrossEntropyProblem;
using Outcome = CrossEntropyOutcome;

void ExpectSameBits(const Outcome& a, const Outcome& b) {
  EXPECT_TRUE(SameBits(a.logits, b.logits));
  EXPECT_TRUE(SameBits(a.loss, b.loss));
  EXPECT_TRUE(SameBits(a.nll, b.nll));
  EXPECT_EQ(a.hits, b.hits);
}

// Around vector lengths; around what a device's block takes at once, 2,048 columns or, from 8,192 on, 8,192.
constexpr int64_t kVocabularies[] = {2, 5, 8, 16, 17, 129, 136, 1000, 2049, 8003, 8008, 8195, 8200};

}  // namespace

Problem CrossEntropyConformance::MakeProblem(int64_t rows, int64_t vocabulary, float size, float label_smoothing,
                                             float gradient_scale) {
  std::vector<float> logits = NormalValues(rows * vocabulary, 2, size);
  for (float& z : logits) z = GetParam().stored(z);
  std::vector<int32_t> targets;
  for (int64_t i = 0; i < rows; ++i) targets.push_back(static_cast<int32_t>((i * 7919 + vocabulary - 1) % vocabulary));
  return {logits, targets, label_smoothing, gradient_scale};
}

TEST_P(CrossEntropyConformance, MatchesTheReferenceEveryWay) {
  for (const int64_t vocabulary : kVocabularies) {
    for (const float smoothing : {0.0f, 0.1f}) {
      SCOPED_TRACE(::testing::Message() << "vocabulary " << vocabulary << ", smoothing " << smoothing);
      constexpr float kScale = 0.125f;
      Problem problem = MakeProblem(3, vocabulary, 4.0f, smoothing, kScale);
      problem.z_loss = 0.25f * smoothing;
      const auto expected =
          CrossEntropyReference(Widen(problem.logits), vocabulary, problem.targets, smoothing, problem.z_loss, kScale);
      const Outcome actual = Run(problem);
      EXPECT_TRUE(NearReference(actual.nll, expected.nll, 8, 4));
      EXPECT_TRUE(NearReference(actual.loss, expected.loss, 8, 4));
      EXPECT_TRUE(NearReference(actual.logits, expected.d_logits, kScale / 8, 16, GetParam().roundoff));
      for (int variation = 1; variation < GetParam().variations; ++variation) {
        SCOPED_TRACE(variation);
        ExpectSameBits(Run(problem, variation), actual);
      }
    }
  }
}

// The first row's target is the largest, the second's equals the largest, the third's is none.
TEST_P(CrossEntropyConformance, HitsAreTheLargestLogits) {
  constexpr int64_t kVocabulary = 2049;
  Problem problem = MakeProblem(3, kVocabulary, 1.0f, 0, 0);
  for (int64_t row = 0; row < 3; ++row) {
    problem.logits[row * kVocabulary + (row == 0 ? problem.targets[0] : 1700)] = 9;
    if (row == 1) problem.logits[row * kVocabulary + problem.targets[1]] = 9;
  }
  EXPECT_EQ(Run(problem).hits, (std::vector<float>{1, 1, 0}));
}

TEST_P(CrossEntropyConformance, NeighboursChangeNoBit) {
  constexpr int64_t kVocabulary = 517;
  const auto together = MakeProblem(13, kVocabulary, 3.0f, 0.1f, 0.5f);
  auto last = together;
  last.targets = {together.targets.back()};
  last.logits.assign(together.logits.end() - kVocabulary, together.logits.end());
  const Outcome all = Run(together);
  ExpectSameBits(
      Run(last),
      {{all.logits.end() - kVocabulary, all.logits.end()}, {all.loss.back()}, {all.nll.back()}, {all.hits.back()}});
}

TEST_P(CrossEntropyConformance, LossAloneLeavesTheLogits) {
  auto problem = MakeProblem(3, 100, 1.0f, 0.1f, 0.0f);
  const Outcome alone = Run(problem);
  EXPECT_TRUE(SameBits(alone.logits, problem.logits));
  problem.gradient_scale = 1;
  const Outcome both = Run(problem);
  EXPECT_TRUE(SameBits(alone.loss, both.loss));
  EXPECT_TRUE(SameBits(alone.nll, both.nll));
}

TEST_P(CrossEntropyConformance, AVocabularyOfOneIsCertain) {
  const Outcome outcome = Run({{3.0f}, {0}});
  EXPECT_EQ(outcome.nll[0], 0.0f);
  EXPECT_EQ(outcome.logits[0], 0.0f);
}

TEST_P(CrossEntropyConformance, LargeLogitsStayFinite) {
  for (const float size : {1e4f, 1e30f}) {
    const Outcome outcome = Run({NormalValues(2 * 333, 6, size), {0, 332}, 0.1f});
    for (const std::vector<float>* values : {&outcome.logits, &outcome.loss, &outcome.nll}) {
      for (const float value : *values) EXPECT_TRUE(std::isfinite(value));
    }
  }
}

TEST_P(CrossEntropyConformance, ForbiddenLogitsHaveProbabilityZero) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const int64_t allowed : {150, 2050}) {
    std::vector<float> z(allowed + 50, -kInfinity);
    z[3] = z[allowed] = -5.0f;
    const Outcome outcome = Run({z, {3}});
    EXPECT_NEAR(outcome.nll[0], std::log(2.0), 1e-6);
    EXPECT_EQ(outcome.logits[0], 0.0f);
    EXPECT_NEAR(outcome.logits[3], -0.5f, 1e-6);
    EXPECT_NEAR(outcome.logits[allowed], 0.5f, 1e-6);
  }
}

TEST_P(CrossEntropyConformance, ANotANumberShowsInItsRowOnly) {
  for (const int64_t place : {0, 130, 512, 600}) {
    std::vector<float> z = NormalValues(2 * 601, 7);
    z[place] = std::numeric_limits<float>::quiet_NaN();
    const Outcome outcome = Run({z, {5, 6}, 0.1f});
    EXPECT_TRUE(std::isnan(outcome.loss[0])) << place;
    EXPECT_TRUE(std::isnan(outcome.nll[0])) << place;
    EXPECT_TRUE(std::isnan(outcome.logits[77])) << place;
    EXPECT_TRUE(std::isfinite(outcome.loss[1])) << place;
  }
}

}  // namespace hadal::testing
