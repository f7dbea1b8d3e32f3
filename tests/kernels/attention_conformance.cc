#include "tests/kernels/attention_conformance.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/rotary.h"
#include "tests/support/random_inputs.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {
namespace {

std::vector<int32_t> OffsetsOf(const std::vector<int32_t>& lengths) {
  std::vector<int32_t> offsets = {0};
  for (const int32_t length : lengths) offsets.push_back(offsets.back() + length);
  return offsets;
}

bool SameResults(const AttentionTensors& a, const AttentionTensors& b) {
  return SameBits(a.output, b.output) && SameBits(a.log_sum_exp, b.log_sum_exp) && SameBits(a.d_q, b.d_q) &&
         SameBits(a.d_k, b.d_k) && SameBits(a.d_v, b.d_v);
}

// Elements of rows [first, first + count) of a dense tensor.
std::vector<float> Rows(const std::vector<float>& values, int64_t columns, int64_t first, int64_t count) {
  return {values.begin() + first * columns, values.begin() + (first + count) * columns};
}

// Every path of the kernels.
std::vector<AttentionProblem> Problems() {
  const std::vector<int32_t> ragged = {5, 1, 33, 8, 17, 1, 32, 70, 3};
  const std::vector<int32_t> other = {9, 4, 1, 129, 16, 1, 33, 31, 40};
  return {
      {"one_token", {1}, {1}, 1, 1},
      {"one_token_causal_dropout", {1, 1}, {1, 1}, 2, 16, true, 0.3},
      {"width_1", ragged, other, 2, 1, false, 0.25},
      {"width_3_causal", ragged, ragged, 3, 3, true, 0.25},
      {"width_16", ragged, ragged, 4, 16},
      {"width_16_cross", ragged, other, 2, 16, false, 0.1},
      {"width_16_causal", ragged, ragged, 2, 16, true},
      {"width_24_causal_dropout", ragged, ragged, 1, 24, true, 0.5},
      {"width_32_cross", other, ragged, 2, 32, false, 0.3},
      {"width_64_causal", {70, 29, 129}, {70, 29, 129}, 2, 64, true, 0.1},
      {"width_64_cross", {31, 2}, {30, 64}, 1, 64},
      {"width_96_cross", {40, 2}, {17, 33}, 1, 96, false, 0.1},
      {"width_128_causal", {37}, {37}, 1, 128, true, 0.1},
      {"turned_width_16_in_part_causal", ragged, ragged, 2, 16, true, 0, 1, 5},
      {"grouped_turned_width_24_causal_dropout", ragged, ragged, 4, 24, true, 0.25, 2, 12},
      {"multi_query_turned_width_32_cross", {40, 2}, {17, 33}, 3, 32, false, 0.1, 3, 16},
      {"grouped_turned_width_64_causal", {70, 29, 33}, {70, 29, 33}, 4, 64, true, 0.1, 2, 32},
      {"turned_width_64_in_part", {31, 2}, {31, 2}, 1, 64, false, 0, 1, 8},
      {"multi_query_turned_width_128_causal", {37}, {37}, 2, 128, true, 0, 2, 64},
      {"window_width_16", ragged, ragged, 2, 16, false, 0, 1, 0, 9},
      {"window_of_one_width_16_causal", ragged, ragged, 2, 16, true, 0.3, 1, 0, 0},
      {"window_grouped_turned_width_24_causal_dropout", ragged, ragged, 4, 24, true, 0.25, 2, 12, 20},
      {"window_width_32_causal_dropout", ragged, ragged, 2, 32, true, 0.1, 1, 0, 12},
      {"window_turned_width_64_dropout", {70, 29, 129}, {70, 29, 129}, 2, 64, false, 0.1, 2, 32, 33},
      {"no_queries_or_no_keys_turned", {3, 0, 4, 0}, {0, 5, 2, 0}, 2, 16, false, 0, 2, 8},
      {"no_queries_or_no_keys_32", {3, 0, 4, 0}, {0, 5, 2, 0}, 2, 32, false, 0.1},
      {"no_queries_or_no_keys", {3, 0, 4, 0}, {0, 5, 2, 0}, 2, 16, false, 0.1},
      {"no_sentences", {}, {}, 2, 16},
  };
}

// Sentences as tensor cores' tiles are cut.
std::vector<AttentionProblem> LongProblems() {
  const std::vector<int32_t> long_and_short = {1, 15, 16, 17, 63, 64, 65, 200};
  const std::vector<int32_t> reversed(long_and_short.rbegin(), long_and_short.rend());
  return {
      {"long_width_32_causal", long_and_short, long_and_short, 2, 32, true, 0.1},
      {"long_width_64_causal", long_and_short, long_and_short, 1, 64, true},
      {"long_width_64_cross", long_and_short, reversed, 1, 64, false, 0.1},
      {"long_width_128_cross", {65, 16, 1}, {17, 64, 63}, 1, 128, false, 0.1},
      {"long_width_128_causal", {200}, {200}, 1, 128, true},
      {"long_window_width_32_causal", long_and_short, long_and_short, 2, 32, true, 0.1, 1, 0, 40},
      {"long_window_width_64", long_and_short, long_and_short, 1, 64, false, 0.1, 1, 0, 64},
      {"long_window_width_128", {200}, {200}, 1, 128, false, 0, 1, 0, 5},
  };
}

}  // namespace

std::vector<int32_t> AttentionProblem::QueryOffsets() const { return OffsetsOf(query_lengths); }
std::vector<int32_t> AttentionProblem::KeyOffsets() const { return OffsetsOf(key_lengths); }

std::vector<float> AttentionProblem::Angles() const {
  constexpr int64_t kPositions = 129;
  std::vector<float> angles(kPositions * 2 * half);
  FillRotaryTable(10000, {angles.data(), kPositions, 2 * half});
  return angles;
}

Dropout AttentionProblem::dropout() const {
  return {{.seed = 99, .step = 4, .micro_batch = 2, .sublayer = 17, .site = RandomSite::kAttention},
          Dropout::Threshold(dropout_rate)};
}

AttentionTensors MakeTensors(const AttentionBackend& backend, const AttentionProblem& problem) {
  const auto values = [&](const std::vector<int32_t>& offsets, int64_t columns, uint32_t seed) {
    std::vector<float> drawn = NormalValues(offsets.back() * columns, seed);
    for (float& x : drawn) x = backend.stored(x);
    return drawn;
  };
  const std::vector<int32_t> queries = problem.QueryOffsets(), keys = problem.KeyOffsets();
  return {.q = values(queries, problem.columns(), 1),
          .k = values(keys, problem.key_columns(), 2),
          .v = values(keys, problem.key_columns(), 3),
          .d_output = values(queries, problem.columns(), 4)};
}

AttentionReferenceProblem ReferenceProblem(const AttentionProblem& problem, const AttentionTensors& tensors) {
  return {.query_offsets = problem.QueryOffsets(),
          .key_offsets = problem.KeyOffsets(),
          .heads = problem.heads,
          .head_width = problem.head_width,
          .causal = problem.causal,
          .dropout = problem.dropout(),
          .q = Widen(tensors.q),
          .k = Widen(tensors.k),
          .v = Widen(tensors.v),
          .group = problem.group,
          .half = problem.half,
          .reach = problem.reach};
}

TEST_P(AttentionConformance, MatchesTheReference) {
  std::vector<AttentionProblem> problems = Problems();
  if (GetParam().long_sentences) {
    for (const AttentionProblem& problem : LongProblems()) problems.push_back(problem);
  }
  const double multiple = GetParam().multiple;
  SignedError signed_error[4];  // output, d_q, d_k, d_v
  for (const AttentionProblem& problem : problems) {
    SCOPED_TRACE(problem.name);
    AttentionTensors t = Tensors(problem);
    AttentionReferenceProblem reference = ReferenceProblem(problem, t);
    if (GetParam().rounds_turned != nullptr && GetParam().rounds_turned(problem))
      reference.turned_as = GetParam().stored;
    const auto forward = AttentionReference(reference);
    const auto backward = AttentionBackwardReference(reference, Widen(t.d_output));
    Run(problem, t);
    // Scores of unit normals reach 4; a probability's relative error is a few times theirs.
    const std::pair<const std::vector<float>&, const std::vector<double>&> results[] = {
        {t.output, forward.output}, {t.d_q, backward.d_q}, {t.d_k, backward.d_k}, {t.d_v, backward.d_v}};
    for (int i = 0; i < 4; ++i) {
      EXPECT_TRUE(NearInL2(results[i].first, results[i].second, GetParam().relative_error));
      signed_error[i].Add(results[i].first, results[i].second);
    }
    EXPECT_TRUE(NearReference(t.output, forward.output, 1, multiple));
    EXPECT_TRUE(NearReference(t.d_q, backward.d_q, 2, multiple));
    EXPECT_TRUE(NearReference(t.d_k, backward.d_k, 4 * problem.group, multiple));
    EXPECT_TRUE(NearReference(t.d_v, backward.d_v, 4 * problem.group, multiple));
    if (problem.name.starts_with("no_queries_or_no_keys")) continue;  // log 0
    // Where turned columns are rounded, one that lies between two values may take the other.
    EXPECT_TRUE(NearReference(t.log_sum_exp, forward.log_sum_exp, 4, reference.turned_as == nullptr ? 8 : 256));
  }
  for (const SignedError& error : signed_error) EXPECT_LE(std::abs(error.Mean()), GetParam().signed_error);
}

TEST_P(AttentionConformance, OrderAndAlignmentChangeNoBit) {
  for (const AttentionProblem& problem : Problems()) {
    SCOPED_TRACE(problem.name);
    AttentionTensors expected = Tensors(problem);
    Run(problem, expected);
    for (int variation = 1; variation < GetParam().variations; ++variation) {
      AttentionTensors t = Tensors(problem);
      Run(problem, t, variation);
      EXPECT_TRUE(SameResults(t, expected)) << "variation " << variation;
    }
  }
}

TEST_P(AttentionConformance, NeighboursChangeNoBit) {
  const std::vector<int32_t> lengths = {7, 1, 45, 20};
  for (const int64_t width : GetParam().head_widths) {
    for (const bool causal : {false, true}) {
      const AttentionProblem together = {"", lengths, lengths, 3, width, causal, 0, 1, width / 2};
      AttentionTensors all = Tensors(together);
      Run(together, all);
      int64_t first = 0;
      for (const int32_t length : lengths) {
        const auto rows = [&](const std::vector<float>& values) { return Rows(values, 3 * width, first, length); };
        AttentionTensors t = {.q = rows(all.q), .k = rows(all.k), .v = rows(all.v), .d_output = rows(all.d_output)};
        Run({"", {length}, {length}, 3, width, causal, 0, 1, width / 2}, t);
        EXPECT_TRUE(SameBits(t.output, rows(all.output)));
        EXPECT_TRUE(SameBits(t.d_q, rows(all.d_q)));
        EXPECT_TRUE(SameBits(t.d_k, rows(all.d_k)));
        EXPECT_TRUE(SameBits(t.d_v, rows(all.d_v)));
        first += length;
      }
    }
  }
}

TEST_P(AttentionConformance, TokensThatAQueryDoesNotSeeChangeNoBit) {
  for (const int64_t width : GetParam().head_widths) {
    for (const auto& [causal, seen_behind] : {std::pair(true, 0), {false, 15}}) {
      AttentionProblem problem = {"", {120}, {120}, 2, width, causal};
      problem.reach = causal ? kWholeSentence : seen_behind;
      const int64_t columns = problem.columns();
      AttentionTensors before = Tensors(problem), after = before;
      for (int64_t e = 70 * columns; e < 120 * columns; ++e) after.k[e] = after.v[e] = after.q[e] = 4096.0f;
      Run(problem, before);
      Run(problem, after);
      const int64_t rows = 70 - seen_behind;
      EXPECT_TRUE(SameBits(Rows(before.output, columns, 0, rows), Rows(after.output, columns, 0, rows)));
    }
  }
}

TEST_P(AttentionConformance, AWindowThatHoldsTheSentenceIsNone) {
  for (const int64_t width : GetParam().head_widths) {
    for (const bool causal : {false, true}) {
      AttentionProblem problem = {"", {70, 3}, {70, 3}, 2, width, causal, 0.1};
      AttentionTensors without = Tensors(problem), with = without;
      Run(problem, without);
      problem.reach = 69;
      Run(problem, with);
      EXPECT_TRUE(SameResults(with, without));
    }
  }
}

// Deep post-norm models make a sentence's tokens resemble each other; dQ is then small, and made of small differences.
// With an outlier among the keys, differences from the first key are large again.
TEST_P(AttentionConformance, KeysThatAreAlikeLeaveAnAccurateQueryGradient) {
  constexpr float kDifference = 1e-2f;
  constexpr double kFloatError =
      1e-4;  // of fp32, whose roundings are relative to the keys and not to their differences
  for (const int64_t width : {8, 32, 64, 128}) {
    for (const bool causal : {false, true}) {
      for (const bool outlier : {false, true}) {
        SCOPED_TRACE(absl::StrCat("width ", width, causal ? ", causal" : "", outlier ? ", outlier" : ""));
        const AttentionProblem problem = {"", {40, 2, 12}, {40, 2, 12}, 2, width, causal};
        AttentionTensors t = Tensors(problem);
        const int64_t columns = problem.columns();
        const std::vector<float> k = Rows(t.k, columns, 1, 1), v = Rows(t.v, columns, 1, 1);
        for (size_t i = 0; i < t.k.size(); ++i) {
          t.v[i] = GetParam().stored(v[i % columns] + kDifference * t.v[i]);
          if (outlier && i < static_cast<size_t>(columns)) continue;
          t.k[i] = GetParam().stored(k[i % columns] + kDifference * t.k[i]);
        }
        const auto backward = AttentionBackwardReference(ReferenceProblem(problem, t), Widen(t.d_output));
        Run(problem, t);
        EXPECT_TRUE(NearInL2(t.d_q, backward.d_q, std::max(GetParam().relative_error, kFloatError)));
      }
    }
  }
}

TEST_P(AttentionConformance, LargeScoresStayFinite) {
  for (const int64_t width : GetParam().head_widths) {
    const AttentionProblem problem = {"", {33}, {33}, 2, width, true};
    AttentionTensors t = Tensors(problem);
    for (float& x : t.q) x *= 8192.0f;
    Run(problem, t);
    for (const std::vector<float>* values : {&t.output, &t.log_sum_exp, &t.d_q, &t.d_k, &t.d_v}) {
      for (const float value : *values) ASSERT_TRUE(std::isfinite(value));
    }
  }
}

TEST_P(AttentionConformance, ANotANumberShows) {
  for (const int64_t width : GetParam().head_widths) {
    const AttentionProblem problem = {"", {20, 5}, {20, 5}, 1, width};
    for (const bool in_query : {false, true}) {
      AttentionTensors t = Tensors(problem);
      (in_query ? t.q : t.k)[13 * width + 2] = NAN;
      Run(problem, t);
      EXPECT_TRUE(std::isnan(t.output[13 * width]));
      EXPECT_TRUE(std::isnan(t.log_sum_exp[13]));
      EXPECT_TRUE(std::isnan(t.d_q[13 * width]));
      EXPECT_FALSE(std::isnan(t.output[20 * width])) << "another sentence";
    }
  }
}

TEST_P(AttentionConformance, WithoutKeysTheOutputIsZero) {
  for (const int64_t width : GetParam().head_widths) {
    const AttentionProblem problem = {"", {3, 2}, {0, 2}, 2, width};
    const int64_t columns = problem.columns();
    AttentionTensors t = Tensors(problem);
    Run(problem, t);
    EXPECT_EQ(Rows(t.output, columns, 0, 3), std::vector<float>(3 * columns, 0.0f));
    EXPECT_EQ(Rows(t.d_q, columns, 0, 3), std::vector<float>(3 * columns, 0.0f));
    EXPECT_EQ(t.log_sum_exp[0], -std::numeric_limits<float>::infinity());
  }
}

}  // namespace hadal::testing
