#include "kernels/attention.h"

#include <limits>

#include "gtest/gtest.h"
#include "runtime/stream.h"
#include "tests/kernels/attention_conformance.h"
#include "tests/support/each_instruction_set.h"
#include "tests/support/finite_difference.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {
namespace {

constexpr float kUnwritten = -777.0f;

struct Variation {
  int threads;
  int64_t misalignment;
};
constexpr Variation kVariations[] = {{1, 1}, {1, 0}, {1, 3}, {2, 0}, {2, 3}, {3, 0}, {3, 3}};

// Runs forward and backward on strided, misaligned matrices, as a layer with fused projections would.
void RunKernels(const AttentionProblem& problem, AttentionTensors& t, int variation) {
  const Stream stream = Stream::Cpu(kVariations[variation].threads);
  const int64_t misalignment = kVariations[variation].misalignment;
  const std::vector<int32_t> query_offsets = problem.QueryOffsets();
  const std::vector<int32_t> key_offsets = problem.KeyOffsets();
  const int64_t query_rows = query_offsets.back(), key_rows = key_offsets.back(), columns = problem.columns();
  const int64_t key_columns = problem.key_columns();
  const std::vector<float> query_blank(query_rows * columns, kUnwritten), key_blank(key_rows * key_columns, kUnwritten);
  const auto strided = [&](const std::vector<float>& values, int64_t rows, int64_t width) {
    return StridedMatrix(values, rows, width, misalignment, 2 * width);
  };
  StridedMatrix q = strided(t.q, query_rows, columns), output = strided(query_blank, query_rows, columns);
  StridedMatrix k = strided(t.k, key_rows, key_columns), v = strided(t.v, key_rows, key_columns);
  StridedMatrix d_output = strided(t.d_output, query_rows, columns), d_q = strided(query_blank, query_rows, columns);
  StridedMatrix d_k = strided(key_blank, key_rows, key_columns), d_v = strided(key_blank, key_rows, key_columns);
  StridedMatrix log_sum_exp(std::vector<float>(query_rows * problem.heads, kUnwritten), query_rows, problem.heads);

  int64_t longest = 0;
  for (const int32_t length : problem.query_lengths) longest = std::max<int64_t>(longest, length);
  for (const int32_t length : problem.key_lengths) longest = std::max<int64_t>(longest, length);
  const int64_t scratch_floats = AttentionScratch(stream, {.max_length = longest, .head_width = problem.head_width});
  // NaN in fresh scratch: whatever is read before it is written shows. One guard behind it.
  std::vector<float> scratch(misalignment + scratch_floats + 1, std::numeric_limits<float>::quiet_NaN());
  scratch.back() = kUnwritten;

  const std::vector<float> angles = problem.Angles();
  const Rotary rotary =
      angles.empty() ? Rotary() : Rotary{{angles.data(), std::ssize(angles) / (2 * problem.half), 2 * problem.half}};
  const AttentionShape shape = {.query_offsets = {query_offsets.data(), static_cast<int64_t>(query_offsets.size())},
                                .key_offsets = {key_offsets.data(), static_cast<int64_t>(key_offsets.size())},
                                .heads = problem.heads,
                                .group = problem.group,
                                .causal = problem.causal,
                                .reach = problem.reach,
                                .rotary = rotary};
  AttentionForward(stream, {.shape = shape,
                            .q = q.view(),
                            .k = k.view(),
                            .v = v.view(),
                            .dropout = problem.dropout(),
                            .output = output.view(),
                            .log_sum_exp = log_sum_exp.view(),
                            .scratch = {scratch.data() + misalignment, scratch_floats}});
  AttentionBackward(stream, {.shape = shape,
                             .q = q.view(),
                             .k = k.view(),
                             .v = v.view(),
                             .log_sum_exp = log_sum_exp.view(),
                             .d_output = d_output.view(),
                             .dropout = problem.dropout(),
                             .d_q = d_q.view(),
                             .d_k = d_k.view(),
                             .d_v = d_v.view(),
                             .scratch = {scratch.data() + misalignment, scratch_floats}});
  EXPECT_EQ(scratch.back(), kUnwritten) << "wrote beyond the scratch";
  for (const StridedMatrix* matrix : {&q, &k, &v, &d_output, &output, &log_sum_exp, &d_q, &d_k, &d_v}) {
    EXPECT_TRUE(matrix->guards_intact()) << "wrote beside a matrix";
  }
  t.output = output.dense();
  t.log_sum_exp = log_sum_exp.dense();
  t.d_q = d_q.dense();
  t.d_k = d_k.dense();
  t.d_v = d_v.dense();
}

std::vector<AttentionBackend> Backends() {
  return BackendsOfInstructionSets([](int64_t target) -> AttentionBackend {
    return {.run = Only(target, RunKernels),
            .variations = std::size(kVariations),
            .stored = [](float x) { return x; },
            .head_widths = {16}};
  });
}
INSTANTIATE_TEST_SUITE_P(Cpu, AttentionConformance, ::testing::ValuesIn(Backends()), BackendName());

TEST(AttentionReferenceTest, GradientsAgreeWithFiniteDifferences) {
  for (const auto& [causal, reach] :
       {std::pair(false, kWholeSentence), {true, kWholeSentence}, {false, 1}, {true, 1}}) {
    const std::vector<int32_t> lengths = {3, 4};
    const std::vector<int32_t> keys = causal || reach == 1 ? lengths : std::vector<int32_t>{5, 2};
    const AttentionProblem problem = {"", lengths, keys, 4, 3, causal, 0.3, 2, 1, reach};
    const AttentionTensors t = MakeTensors(Backends().front(), problem);
    AttentionReferenceProblem reference = ReferenceProblem(problem, t);
    const std::vector<double> d_output = Widen(t.d_output);
    const auto gradients = AttentionBackwardReference(reference, d_output);
    const auto loss = [&] { return Dot(AttentionReference(reference).output, d_output); };
    EXPECT_TRUE(IsGradient(reference.q, loss, gradients.d_q));
    EXPECT_TRUE(IsGradient(reference.k, loss, gradients.d_k));
    EXPECT_TRUE(IsGradient(reference.v, loss, gradients.d_v));
  }
}

TEST(AttentionDeathTest, CausalNeedsEqualOffsets) {
  const AttentionProblem problem = {"", {3, 4}, {4, 3}, 1, 4, true};
  AttentionTensors t = MakeTensors(Backends().front(), problem);
  EXPECT_DEATH(RunKernels(problem, t, 0), "3 vs. 4");
}

}  // namespace
}  // namespace hadal::testing
