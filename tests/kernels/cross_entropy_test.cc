#include "kernels/cross_entropy.h"

#include "gtest/gtest.h"
#include "runtime/stream.h"
#include "tests/kernels/cross_entropy_conformance.h"
#include "tests/support/cross_entropy_reference.h"
#include "tests/support/each_instruction_set.h"
#include "tests/support/finite_difference.h"
#include "tests/support/random_inputs.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {
namespace {

struct Variation {
  int threads;
  int64_t offset, padding;
};
constexpr Variation kVariations[] = {{1, 0, 0}, {1, 1, 3}, {1, 3, 5}, {2, 0, 5}, {3, 1, 0}};

CrossEntropyOutcome RunCrossEntropy(const CrossEntropyProblem& problem, int variation) {
  const auto& [threads, offset, padding] = kVariations[variation];
  const int64_t rows = problem.rows();
  StridedMatrix logits(problem.logits, rows, problem.vocabulary(), offset, padding);
  const std::vector<float> unset(rows, NAN);
  CrossEntropyOutcome outcome = {{}, unset, unset, unset};
  CrossEntropy(Stream::Cpu(threads), {.logits = logits.view(),
                                      .targets = {problem.targets.data(), rows},
                                      .label_smoothing = problem.label_smoothing,
                                      .z_loss = problem.z_loss,
                                      .gradient_scale = problem.gradient_scale,
                                      .loss = {outcome.loss.data(), rows},
                                      .nll = {outcome.nll.data(), rows},
                                      .hits = {outcome.hits.data(), rows}});
  EXPECT_TRUE(logits.guards_intact());
  outcome.logits = logits.dense();
  return outcome;
}

std::vector<CrossEntropyBackend> Backends() {
  return BackendsOfInstructionSets([](int64_t target) -> CrossEntropyBackend {
    return {.run = Only(target, RunCrossEntropy), .variations = std::size(kVariations), .stored = [](float x) {
              return x;
            }};
  });
}
INSTANTIATE_TEST_SUITE_P(Cpu, CrossEntropyConformance, ::testing::ValuesIn(Backends()), BackendName());

TEST(CrossEntropyReferenceTest, GradientAgreesWithFiniteDifferences) {
  const std::vector<int32_t> targets = {4, 10};
  std::vector<double> z = Widen(NormalValues(2 * 11, 1, 2.0f));
  const auto loss = [&] {
    const std::vector<double> of_rows = CrossEntropyReference(z, 11, targets, 0.1, 0.01, 1.0).loss;
    return of_rows[0] + of_rows[1];
  };
  EXPECT_TRUE(IsGradient(z, loss, CrossEntropyReference(z, 11, targets, 0.1, 0.01, 1.0).d_logits));
}

}  // namespace
}  // namespace hadal::testing
