#include "kernels/attention.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/attention_reference.h"
#include "tests/support/each_instruction_set.h"
#include "tests/support/finite_difference.h"
#include "tests/support/random_inputs.h"
#include "tests/support/strided_matrix.h"

namespace hadal {
namespace {

using testing::NearReference;
using testing::NormalValues;
using testing::SameBits;
using testing::StridedMatrix;
using testing::Widen;

constexpr float kUnwritten = -777.0f;

struct Problem {
  std::string name;
  std::vector<int32_t> query_lengths, key_lengths;
  int32_t heads;
  int64_t head_width;
  bool causal = false;
  double dropout = 0;

  int64_t columns() const { return heads * head_width; }
};

std::vector<int32_t> OffsetsOf(const std::vector<int32_t>& lengths) {
  std::vector<int32_t> offsets = {0};
  for (const int32_t length : lengths) offsets.push_back(offsets.back() + length);
  return offsets;
}

Dropout DropoutOf(const Problem& problem) {
  return {{.seed = 99, .step = 4, .micro_batch = 2, .sublayer = 17, .site = RandomSite::kAttention},
          Dropout::Threshold(problem.dropout)};
}

// Inputs and outputs, dense [rows, columns].
struct Tensors {
  std::vector<float> q, k, v, d_context;
  std::vector<float> context, log_sum_exp, d_q, d_k, d_v;
};

Tensors MakeTensors(const Problem& problem) {
  const int64_t query_values = OffsetsOf(problem.query_lengths).back() * problem.columns();
  const int64_t key_values = OffsetsOf(problem.key_lengths).back() * problem.columns();
  Tensors t;
  t.q = NormalValues(query_values, 1);
  t.k = NormalValues(key_values, 2);
  t.v = NormalValues(key_values, 3);
  t.d_context = NormalValues(query_values, 4);
  return t;
}

// Runs forward and backward on strided, misaligned matrices, as a layer with fused projections would.
void RunKernels(const Stream& stream, const Problem& problem, Tensors& t, int64_t misalignment = 1) {
  const std::vector<int32_t> query_offsets = OffsetsOf(problem.query_lengths);
  const std::vector<int32_t> key_offsets = OffsetsOf(problem.key_lengths);
  const int64_t query_rows = query_offsets.back(), key_rows = key_offsets.back(), columns = problem.columns();
  const std::vector<float> query_blank(query_rows * columns, kUnwritten), key_blank(key_rows * columns, kUnwritten);
  const auto strided = [&](const std::vector<float>& values, int64_t rows) {
    return StridedMatrix(values, rows, columns, misalignment, 2 * columns);
  };
  StridedMatrix q = strided(t.q, query_rows), k = strided(t.k, key_rows), v = strided(t.v, key_rows);
  StridedMatrix d_context = strided(t.d_context, query_rows), context = strided(query_blank, query_rows);
  StridedMatrix d_q = strided(query_blank, query_rows), d_k = strided(key_blank, key_rows);
  StridedMatrix d_v = strided(key_blank, key_rows);
  StridedMatrix log_sum_exp(std::vector<float>(query_rows * problem.heads, kUnwritten), query_rows, problem.heads);

  int64_t longest = 0;
  for (const int32_t length : problem.query_lengths) longest = std::max<int64_t>(longest, length);
  for (const int32_t length : problem.key_lengths) longest = std::max<int64_t>(longest, length);
  const int64_t scratch_floats = AttentionScratch(stream, {.max_length = longest, .head_width = problem.head_width});
  // NaN in fresh scratch: whatever is read before it is written shows. One guard behind it.
  std::vector<float> scratch(misalignment + scratch_floats + 1, std::numeric_limits<float>::quiet_NaN());
  scratch.back() = kUnwritten;

  const AttentionShape shape = {.query_offsets = {query_offsets.data(), static_cast<int64_t>(query_offsets.size())},
                                .key_offsets = {key_offsets.data(), static_cast<int64_t>(key_offsets.size())},
                                .heads = problem.heads,
                                .causal = problem.causal};
  AttentionForward(stream, {.shape = shape,
                            .q = q.view(),
                            .k = k.view(),
                            .v = v.view(),
                            .dropout = DropoutOf(problem),
                            .context = context.view(),
                            .log_sum_exp = log_sum_exp.view(),
                            .scratch = {scratch.data() + misalignment, scratch_floats}});
  AttentionBackward(stream, {.shape = shape,
                             .q = q.view(),
                             .k = k.view(),
                             .v = v.view(),
                             .log_sum_exp = log_sum_exp.view(),
                             .d_context = d_context.view(),
                             .dropout = DropoutOf(problem),
                             .d_q = d_q.view(),
                             .d_k = d_k.view(),
                             .d_v = d_v.view(),
                             .scratch = {scratch.data() + misalignment, scratch_floats}});
  EXPECT_EQ(scratch.back(), kUnwritten) << "wrote beyond the scratch";
  for (const StridedMatrix* matrix : {&q, &k, &v, &d_context, &context, &log_sum_exp, &d_q, &d_k, &d_v}) {
    EXPECT_TRUE(matrix->guards_intact()) << "wrote beside a matrix";
  }
  t.context = context.dense();
  t.log_sum_exp = log_sum_exp.dense();
  t.d_q = d_q.dense();
  t.d_k = d_k.dense();
  t.d_v = d_v.dense();
}

testing::AttentionReferenceProblem ReferenceProblem(const Problem& problem, const Tensors& t) {
  return {.query_offsets = OffsetsOf(problem.query_lengths),
          .key_offsets = OffsetsOf(problem.key_lengths),
          .heads = problem.heads,
          .head_width = problem.head_width,
          .causal = problem.causal,
          .dropout = DropoutOf(problem),
          .q = Widen(t.q),
          .k = Widen(t.k),
          .v = Widen(t.v)};
}

void ExpectSameBits(const Tensors& a, const Tensors& b) {
  EXPECT_TRUE(SameBits(a.context, b.context));
  EXPECT_TRUE(SameBits(a.log_sum_exp, b.log_sum_exp));
  EXPECT_TRUE(SameBits(a.d_q, b.d_q));
  EXPECT_TRUE(SameBits(a.d_k, b.d_k));
  EXPECT_TRUE(SameBits(a.d_v, b.d_v));
}

std::vector<Problem> Problems() {
  const std::vector<int32_t> ragged = {5, 1, 33, 8, 17, 1, 32, 70, 3};
  const std::vector<int32_t> other = {9, 4, 1, 129, 16, 1, 33, 31, 40};
  return {
      {"one_token", {1}, {1}, 1, 1},
      {"one_token_causal_dropout", {1, 1}, {1, 1}, 2, 16, true, 0.3},
      {"width_1", ragged, other, 2, 1, false, 0.25},
      {"width_3_causal", ragged, ragged, 3, 3, true, 0.25},
      {"width_16", ragged, ragged, 4, 16},
      {"width_16_cross", ragged, other, 4, 16, false, 0.1},
      {"width_16_causal", ragged, ragged, 4, 16, true},
      {"width_24_causal_dropout", ragged, ragged, 1, 24, true, 0.5},
      {"width_32_cross", other, ragged, 2, 32},
      {"width_64_causal", {70, 29, 129}, {70, 29, 129}, 5, 64, true, 0.1},
      {"width_64_cross", {31, 2}, {30, 64}, 1, 64},
      {"no_queries_or_no_keys", {3, 0, 4, 0}, {0, 5, 2, 0}, 2, 16, false, 0.1},
      {"no_sentences", {}, {}, 2, 16},
  };
}

TEST(AttentionReferenceTest, GradientsAgreeWithFiniteDifferences) {
  for (const bool causal : {false, true}) {
    const Problem problem = {"",     {3, 4}, causal ? std::vector<int32_t>{3, 4} : std::vector<int32_t>{5, 2}, 2, 3,
                             causal, 0.3};
    const Tensors t = MakeTensors(problem);
    testing::AttentionReferenceProblem reference = ReferenceProblem(problem, t);
    const std::vector<double> d_context = Widen(t.d_context);
    const auto gradients = AttentionBackwardReference(reference, d_context);
    const auto loss = [&] { return testing::Dot(AttentionReference(reference).context, d_context); };
    EXPECT_TRUE(testing::IsGradient(reference.q, loss, gradients.d_q));
    EXPECT_TRUE(testing::IsGradient(reference.k, loss, gradients.d_k));
    EXPECT_TRUE(testing::IsGradient(reference.v, loss, gradients.d_v));
  }
}

TEST(AttentionTest, MatchesTheReference) {
  for (const Problem& problem : Problems()) {
    Tensors t = MakeTensors(problem);
    const testing::AttentionReferenceProblem reference = ReferenceProblem(problem, t);
    const auto forward = AttentionReference(reference);
    const auto backward = AttentionBackwardReference(reference, Widen(t.d_context));
    testing::ForEachInstructionSet([&] {
      SCOPED_TRACE(problem.name);
      RunKernels(Stream::Cpu(1), problem, t);
      // Scores of unit normals reach 4; a probability's relative error is a few times theirs.
      EXPECT_TRUE(NearReference(t.context, forward.context, 1, 64));
      EXPECT_TRUE(NearReference(t.d_q, backward.d_q, 2, 64));
      EXPECT_TRUE(NearReference(t.d_k, backward.d_k, 4, 64));
      EXPECT_TRUE(NearReference(t.d_v, backward.d_v, 4, 64));
      if (problem.name == "no_queries_or_no_keys") return;  // log 0
      EXPECT_TRUE(NearReference(t.log_sum_exp, forward.log_sum_exp, 4, 8));
    });
  }
}

TEST(AttentionTest, ThreadsAndAlignmentChangeNoBit) {
  for (const Problem& problem : Problems()) {
    SCOPED_TRACE(problem.name);
    Tensors expected = MakeTensors(problem);
    RunKernels(Stream::Cpu(1), problem, expected);
    for (const int threads : {1, 2, 3}) {
      for (const int64_t misalignment : {0, 3}) {
        Tensors t = MakeTensors(problem);
        RunKernels(Stream::Cpu(threads), problem, t, misalignment);
        ExpectSameBits(t, expected);
      }
    }
  }
}

// Elements of rows [first, first + count) of a dense tensor.
std::vector<float> Rows(const std::vector<float>& values, int64_t columns, int64_t first, int64_t count) {
  return {values.begin() + first * columns, values.begin() + (first + count) * columns};
}

TEST(AttentionTest, NeighboursChangeNoBit) {
  for (const bool causal : {false, true}) {
    const std::vector<int32_t> lengths = {7, 1, 45, 20};
    const Problem together = {"", lengths, lengths, 3, 16, causal};
    Tensors all = MakeTensors(together);
    RunKernels(Stream::Cpu(1), together, all);
    int64_t first = 0;
    for (const int32_t length : lengths) {
      const Problem alone = {"", {length}, {length}, 3, 16, causal};
      const auto rows = [&](const std::vector<float>& values) { return Rows(values, 48, first, length); };
      Tensors t = {.q = rows(all.q), .k = rows(all.k), .v = rows(all.v), .d_context = rows(all.d_context)};
      RunKernels(Stream::Cpu(1), alone, t);
      EXPECT_TRUE(SameBits(t.context, rows(all.context)));
      EXPECT_TRUE(SameBits(t.d_q, rows(all.d_q)));
      EXPECT_TRUE(SameBits(t.d_k, rows(all.d_k)));
      EXPECT_TRUE(SameBits(t.d_v, rows(all.d_v)));
      first += length;
    }
  }
}

TEST(AttentionTest, LaterTokensDoNotReachCausalQueries) {
  const Problem problem = {"", {70}, {70}, 2, 16, true};
  Tensors before = MakeTensors(problem), after = before;
  for (int64_t e = 50 * 32; e < 70 * 32; ++e) after.k[e] = after.v[e] = after.q[e] = 1e6f;
  testing::ForEachInstructionSet([&] {
    RunKernels(Stream::Cpu(1), problem, before);
    RunKernels(Stream::Cpu(1), problem, after);
    EXPECT_TRUE(SameBits(Rows(before.context, 32, 0, 50), Rows(after.context, 32, 0, 50)));
  });
}

// Deep post-norm models make a sentence's tokens resemble each other; dQ is then small, and made of small differences.
TEST(AttentionTest, KeysThatAreAlikeLeaveAnAccurateQueryGradient) {
  constexpr float kDifference = 1e-2f;
  const Problem problem = {"", {33, 2, 12}, {33, 2, 12}, 2, 8};
  Tensors t = MakeTensors(problem);
  for (size_t i = problem.columns(); i < t.k.size(); ++i) {
    t.k[i] = t.k[i % problem.columns()] + kDifference * t.k[i];
    t.v[i] = t.v[i % problem.columns()] + kDifference * t.v[i];
  }
  const auto backward = AttentionBackwardReference(ReferenceProblem(problem, t), Widen(t.d_context));
  testing::ForEachInstructionSet([&] {
    RunKernels(Stream::Cpu(1), problem, t);
    EXPECT_TRUE(NearReference(t.d_q, backward.d_q, kDifference, 32));
  });
}

TEST(AttentionTest, LargeScoresStayFinite) {
  const Problem problem = {"", {33}, {33}, 2, 16, true};
  Tensors t = MakeTensors(problem);
  for (float& x : t.q) x *= 1e4f;
  testing::ForEachInstructionSet([&] {
    RunKernels(Stream::Cpu(1), problem, t);
    for (const std::vector<float>* values : {&t.context, &t.log_sum_exp, &t.d_q, &t.d_k, &t.d_v}) {
      for (const float value : *values) ASSERT_TRUE(std::isfinite(value));
    }
  });
}

TEST(AttentionTest, ANotANumberShows) {
  const Problem problem = {"", {20, 5}, {20, 5}, 1, 16};
  testing::ForEachInstructionSet([&] {
    for (const bool in_query : {false, true}) {
      Tensors t = MakeTensors(problem);
      (in_query ? t.q : t.k)[13 * 16 + 2] = std::numeric_limits<float>::quiet_NaN();
      RunKernels(Stream::Cpu(1), problem, t);
      EXPECT_TRUE(std::isnan(t.context[13 * 16]));
      EXPECT_TRUE(std::isnan(t.log_sum_exp[13]));
      EXPECT_TRUE(std::isnan(t.d_q[13 * 16]));
      EXPECT_FALSE(std::isnan(t.context[20 * 16])) << "another sentence";
    }
  });
}

TEST(AttentionTest, WithoutKeysTheContextIsZero) {
  const Problem problem = {"", {3, 2}, {0, 2}, 2, 16};
  Tensors t = MakeTensors(problem);
  RunKernels(Stream::Cpu(2), problem, t);
  EXPECT_EQ(Rows(t.context, 32, 0, 3), std::vector<float>(3 * 32, 0.0f));
  EXPECT_EQ(Rows(t.d_q, 32, 0, 3), std::vector<float>(3 * 32, 0.0f));
  EXPECT_EQ(t.log_sum_exp[0], -std::numeric_limits<float>::infinity());
}

TEST(AttentionDeathTest, CausalNeedsEqualOffsets) {
  const Problem problem = {"", {3, 4}, {4, 3}, 1, 4, true};
  Tensors t = MakeTensors(problem);
  EXPECT_DEATH(RunKernels(Stream::Cpu(1), problem, t), "3 vs. 4");
}

}  // namespace
}  // namespace hadal
