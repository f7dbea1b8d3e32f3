#include "kernels/cross_entropy.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/cross_entropy_conformance.h"
#include "tests/support/cross_entropy_reference.h"
#include "tests/support/each_instruction_set.h"
#include "tests/support/random_inputs.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {
namespace {

struct Variation {
  int threads;
  int64_t offset, padding;
};
constexpr Variation kVariations[] = {{1, 0, 0}, {1, 1, 3}, {1, 3, 5}, {2, 0, 5}, {3, 1, 0}};

CrossEntropyOutcome RunCrossEntropy(const CrossEntropyProblem& problem, const Variation& variation) {
  const int64_t rows = problem.rows();
  StridedMatrix logits(problem.logits, rows, problem.vocabulary(), variation.offset, variation.padding);
  CrossEntropyOutcome outcome = {{}, std::vector<float>(rows, NAN), std::vector<float>(rows, NAN)};
  CrossEntropy(Stream::Cpu(variation.threads), {.logits = logits.view(),
                                                .targets = {problem.targets.data(), rows},
                                                .label_smoothing = problem.label_smoothing,
                                                .gradient_scale = problem.gradient_scale,
                                                .loss = {outcome.loss.data(), rows},
                                                .nll = {outcome.nll.data(), rows}});
  EXPECT_TRUE(logits.guards_intact());
  outcome.logits = logits.dense();
  return outcome;
}

// One for each instruction set.
std::vector<CrossEntropyBackend> Backends() {
  std::vector<CrossEntropyBackend> backends;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const auto run = [target](const CrossEntropyProblem& problem, int variation) {
      const OnInstructionSet only(target);
      return RunCrossEntropy(problem, kVariations[variation]);
    };
    backends.push_back(
        {.name = hwy::TargetName(target), .run = run, .variations = std::size(kVariations), .stored = [](float x) {
           return x;
         }});
  }
  return backends;
}
INSTANTIATE_TEST_SUITE_P(Cpu, CrossEntropyConformance, ::testing::ValuesIn(Backends()), CrossEntropyBackendName);

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

TEST(CrossEntropyDeathTest, RejectsATargetOutsideTheVocabulary) {
  EXPECT_DEATH(RunCrossEntropy({std::vector<float>(10), {10}}, kVariations[0]), "10 vs. 10");
  EXPECT_DEATH(RunCrossEntropy({std::vector<float>(10), {-1}}, kVariations[0]), "-1 vs. 0");
}

}  // namespace
}  // namespace hadal::testing
