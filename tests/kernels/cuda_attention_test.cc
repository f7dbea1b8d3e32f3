#include "kernels/cuda/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/tensor_attention.h"
#include "tests/support/attention_reference.h"
#include "tests/support/kernel_device.h"
#include "tests/support/random_inputs.h"
#include "tests/support/strided_matrix.h"

namespace hadal {
namespace {

using cuda::BFloat16;
using testing::DeviceMatrixOf;
using testing::DeviceVectorOf;
using testing::KernelDevice;
using testing::NearReference;
using testing::NormalValues;
using testing::Placement;
using testing::Rounded;
using testing::SameBits;
using testing::Widen;

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

bool SameResults(const Tensors& a, const Tensors& b) {
  return SameBits(a.context, b.context) && SameBits(a.log_sum_exp, b.log_sum_exp) && SameBits(a.d_q, b.d_q) &&
         SameBits(a.d_k, b.d_k) && SameBits(a.d_v, b.d_v);
}

template <typename T>
Tensors MakeTensors(const Problem& problem) {
  const int64_t query_values = OffsetsOf(problem.query_lengths).back() * problem.columns();
  const int64_t key_values = OffsetsOf(problem.key_lengths).back() * problem.columns();
  Tensors t;
  t.q = Rounded<T>(NormalValues(query_values, 1));
  t.k = Rounded<T>(NormalValues(key_values, 2));
  t.v = Rounded<T>(NormalValues(key_values, 3));
  t.d_context = Rounded<T>(NormalValues(query_values, 4));
  return t;
}

// Runs forward and backward as a layer with fused projections would; the tile lists have room for two more.
template <typename T>
void RunKernels(const Problem& problem, Tensors& t, Placement place = {}, uint64_t seed = 1) {
  KernelDevice device(seed);
  const std::vector<int32_t> query_offsets = OffsetsOf(problem.query_lengths),
                             key_offsets = OffsetsOf(problem.key_lengths);
  const int64_t query_rows = query_offsets.back(), key_rows = key_offsets.back(), columns = problem.columns();
  const std::vector<float> blank(std::max(query_rows, key_rows) * columns, NAN);
  const auto matrix = [&](const std::vector<float>& values, int64_t rows) {
    return DeviceMatrixOf<T>(device, values, rows, columns, place);
  };
  const auto q = matrix(t.q, query_rows), k = matrix(t.k, key_rows), v = matrix(t.v, key_rows);
  const auto d_context = matrix(t.d_context, query_rows), context = matrix(blank, query_rows);
  const auto d_q = matrix(blank, query_rows), d_k = matrix(blank, key_rows), d_v = matrix(blank, key_rows);
  const std::vector<float> terms(query_rows * problem.heads * 2, NAN);
  const DeviceMatrixOf<float> log_sum_exp(device, terms, query_rows, problem.heads, place);
  const DeviceMatrixOf<float> row_terms(device, terms, query_rows, 2 * problem.heads, place);
  DeviceVectorOf<cuda::RandomPosition> position(device, {cuda::PositionOf(DropoutOf(problem))});
  cuda::AttentionTiles tiles = cuda::CutIntoTiles(query_offsets, key_offsets);
  tiles.of_queries.resize(tiles.of_queries.size() + 2);
  tiles.of_keys.resize(tiles.of_keys.size() + 2);
  DeviceVectorOf<cuda::AttentionTile> query_tiles(device, tiles.of_queries), key_tiles(device, tiles.of_keys);
  const cuda::AttentionShape shape = {problem.heads, static_cast<int32_t>(problem.head_width), problem.causal};
  const cuda::DeviceDropout dropout = cuda::MakeDeviceDropout(DropoutOf(problem), position.data());

  cuda::AttentionForwardArgs<T> forward = {.shape = shape, .dropout = dropout};
  forward.query_tiles = query_tiles.data(), forward.query_tile_capacity = tiles.of_queries.size();
  forward.q = q.view(), forward.k = k.view(), forward.v = v.view();
  forward.context = context.view(), forward.log_sum_exp = log_sum_exp.view();
  cuda::AttentionForward(device.stream(), forward);

  cuda::AttentionBackwardArgs<T> backward = {.shape = shape, .dropout = dropout};
  backward.query_tiles = query_tiles.data(), backward.query_tile_capacity = tiles.of_queries.size();
  backward.key_tiles = key_tiles.data(), backward.key_tile_capacity = tiles.of_keys.size();
  backward.q = q.view(), backward.k = k.view(), backward.v = v.view();
  backward.log_sum_exp = log_sum_exp.view(), backward.d_context = d_context.view();
  backward.d_q = d_q.view(), backward.d_k = d_k.view(), backward.d_v = d_v.view(),
  backward.row_terms = row_terms.view();
  cuda::AttentionBackward(device.stream(), backward);
  for (const auto* written : {&context, &d_q, &d_k, &d_v}) EXPECT_TRUE(written->guards_intact());
  EXPECT_TRUE(log_sum_exp.guards_intact() && row_terms.guards_intact());
  t.context = context.dense(), t.log_sum_exp = log_sum_exp.dense();
  t.d_q = d_q.dense(), t.d_k = d_k.dense(), t.d_v = d_v.dense();
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

// Every path of both kernels; those named long are what the tiles of tensor cores are cut by.
std::vector<Problem> Problems() {
  const std::vector<int32_t> ragged = {5, 1, 33, 8, 17, 32, 70, 3};
  const std::vector<int32_t> other = {9, 4, 1, 65, 16, 33, 31, 40};
  const std::vector<int32_t> long_and_short = {1, 15, 16, 17, 63, 64, 65, 200};
  const std::vector<int32_t> reversed(long_and_short.rbegin(), long_and_short.rend());
  return {
      {"one_token", {1}, {1}, 1, 1},
      {"one_token_causal_dropout", {1, 1}, {1, 1}, 2, 16, true, 0.3},
      {"width_3_causal", ragged, ragged, 2, 3, true, 0.25},
      {"width_16_cross", ragged, other, 2, 16, false, 0.1},
      {"width_24_causal_dropout", ragged, ragged, 1, 24, true, 0.5},
      {"width_64_causal", {70, 29}, {70, 29}, 2, 64, true, 0.1},
      {"width_64_cross", {31, 2}, {30, 64}, 1, 64},
      {"width_96_cross", {40, 2}, {17, 33}, 1, 96, false, 0.1},
      {"width_128_causal", {37}, {37}, 1, 128, true, 0.1},
      {"width_32_long_causal", long_and_short, long_and_short, 2, 32, true, 0.1},
      {"width_32_cross", ragged, other, 2, 32, false, 0.3},
      {"width_64_long_causal", long_and_short, long_and_short, 1, 64, true},
      {"width_64_long_cross", long_and_short, reversed, 1, 64, false, 0.1},
      {"width_128_long_cross", {65, 16, 1}, {17, 64, 63}, 1, 128, false, 0.1},
      {"width_128_long_causal", {200}, {200}, 1, 128, true},
      {"no_queries_or_no_keys_32", {3, 0, 4, 0}, {0, 5, 2, 0}, 2, 32, false, 0.1},
      {"no_queries_or_no_keys", {3, 0, 4, 0}, {0, 5, 2, 0}, 2, 16, false, 0.1},
      {"no_sentences", {}, {}, 2, 16},
  };
}

bool IsLong(const Problem& problem) { return problem.name.find("long") != std::string::npos; }

template <typename T>
class CudaAttentionTest : public ::testing::Test {
 protected:
  static double Multiple(double fp32) { return std::is_same_v<T, float> ? fp32 : 0x1p16 * 2; }
};
using StoredTypes = ::testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(CudaAttentionTest, StoredTypes);

TYPED_TEST(CudaAttentionTest, MatchesTheReference) {
  for (const Problem& problem : Problems()) {
    SCOPED_TRACE(problem.name);
    if (std::is_same_v<TypeParam, float> && IsLong(problem)) continue;
    Tensors t = MakeTensors<TypeParam>(problem);
    const testing::AttentionReferenceProblem reference = ReferenceProblem(problem, t);
    const auto forward = AttentionReference(reference);
    const auto backward = AttentionBackwardReference(reference, Widen(t.d_context));
    RunKernels<TypeParam>(problem, t);
    // Scores of unit normals reach 4; a probability's relative error is a few times theirs.
    EXPECT_TRUE(NearReference(t.context, forward.context, 1, this->Multiple(64)));
    EXPECT_TRUE(NearReference(t.d_q, backward.d_q, 2, this->Multiple(64)));
    EXPECT_TRUE(NearReference(t.d_k, backward.d_k, 4, this->Multiple(64)));
    EXPECT_TRUE(NearReference(t.d_v, backward.d_v, 4, this->Multiple(64)));
    if (problem.name.starts_with("no_queries_or_no_keys")) continue;  // log 0
    EXPECT_TRUE(NearReference(t.log_sum_exp, forward.log_sum_exp, 4, 8));
  }
}

TYPED_TEST(CudaAttentionTest, OrderAndAlignmentChangeNoBit) {
  for (const Problem& problem : Problems()) {
    SCOPED_TRACE(problem.name);
    if (IsLong(problem)) continue;
    Tensors expected = MakeTensors<TypeParam>(problem), other = expected;
    RunKernels<TypeParam>(problem, expected);
    RunKernels<TypeParam>(problem, other, {1, 2 * problem.columns() + 1}, /*seed=*/2);
    EXPECT_TRUE(SameResults(other, expected));
  }
}

// Elements of rows [first, first + count) of a dense tensor.
std::vector<float> Rows(const std::vector<float>& values, int64_t columns, int64_t first, int64_t count) {
  return {values.begin() + first * columns, values.begin() + (first + count) * columns};
}

// Heads of plain kernels and of those for tensor cores.
constexpr int64_t kHeadWidths[] = {16, 32};

TYPED_TEST(CudaAttentionTest, NeighboursChangeNoBit) {
  const std::vector<int32_t> lengths = {7, 1, 45, 20};
  for (const int64_t width : kHeadWidths) {
    const Problem together = {"", lengths, lengths, 3, width, true};
    Tensors all = MakeTensors<TypeParam>(together);
    RunKernels<TypeParam>(together, all);
    int64_t first = 0;
    for (const int32_t length : lengths) {
      const auto rows = [&](const std::vector<float>& values) { return Rows(values, 3 * width, first, length); };
      Tensors t = {.q = rows(all.q), .k = rows(all.k), .v = rows(all.v), .d_context = rows(all.d_context)};
      RunKernels<TypeParam>({"", {length}, {length}, 3, width, true}, t);
      EXPECT_TRUE(SameBits(t.context, rows(all.context)));
      EXPECT_TRUE(SameBits(t.d_q, rows(all.d_q)));
      EXPECT_TRUE(SameBits(t.d_k, rows(all.d_k)));
      EXPECT_TRUE(SameBits(t.d_v, rows(all.d_v)));
      first += length;
    }
  }
}

TYPED_TEST(CudaAttentionTest, LaterTokensDoNotReachCausalQueries) {
  for (const int64_t width : kHeadWidths) {
    const Problem problem = {"", {70}, {70}, 2, width, true};
    const int64_t columns = problem.columns();
    Tensors before = MakeTensors<TypeParam>(problem), after = before;
    for (int64_t e = 50 * columns; e < 70 * columns; ++e) after.k[e] = after.v[e] = after.q[e] = 4096.0f;
    RunKernels<TypeParam>(problem, before);
    RunKernels<TypeParam>(problem, after);
    EXPECT_TRUE(SameBits(Rows(before.context, columns, 0, 50), Rows(after.context, columns, 0, 50)));
  }
}

// Deep post-norm models make a sentence's tokens resemble each other; dQ is then small, and made of small differences.
TEST(CudaAttentionAccuracyTest, KeysThatAreAlikeLeaveAnAccurateQueryGradient) {
  constexpr float kDifference = 1e-2f;
  const Problem problem = {"", {40, 2, 12}, {40, 2, 12}, 2, 8};
  Tensors t = MakeTensors<float>(problem);
  for (size_t i = problem.columns(); i < t.k.size(); ++i) {
    t.k[i] = t.k[i % problem.columns()] + kDifference * t.k[i];
    t.v[i] = t.v[i % problem.columns()] + kDifference * t.v[i];
  }
  const auto backward = AttentionBackwardReference(ReferenceProblem(problem, t), Widen(t.d_context));
  RunKernels<float>(problem, t);
  EXPECT_TRUE(NearReference(t.d_q, backward.d_q, kDifference, 32));
}

TYPED_TEST(CudaAttentionTest, LargeScoresStayFinite) {
  for (const int64_t width : kHeadWidths) {
    const Problem problem = {"", {33}, {33}, 2, width, true};
    Tensors t = MakeTensors<TypeParam>(problem);
    for (float& x : t.q) x *= 8192.0f;
    RunKernels<TypeParam>(problem, t);
    for (const std::vector<float>* values : {&t.context, &t.log_sum_exp, &t.d_q, &t.d_k, &t.d_v}) {
      for (const float value : *values) ASSERT_TRUE(std::isfinite(value));
    }
  }
}

TYPED_TEST(CudaAttentionTest, ANotANumberShows) {
  for (const int64_t width : kHeadWidths) {
    const Problem problem = {"", {20, 5}, {20, 5}, 1, width};
    for (const bool in_query : {false, true}) {
      Tensors t = MakeTensors<TypeParam>(problem);
      (in_query ? t.q : t.k)[13 * width + 2] = NAN;
      RunKernels<TypeParam>(problem, t);
      EXPECT_TRUE(std::isnan(t.context[13 * width]));
      EXPECT_TRUE(std::isnan(t.log_sum_exp[13]));
      EXPECT_TRUE(std::isnan(t.d_q[13 * width]));
      EXPECT_FALSE(std::isnan(t.context[20 * width])) << "another sentence";
    }
  }
}

TYPED_TEST(CudaAttentionTest, WithoutKeysTheContextIsZero) {
  for (const int64_t width : kHeadWidths) {
    const Problem problem = {"", {3, 2}, {0, 2}, 2, width};
    const int64_t columns = problem.columns();
    Tensors t = MakeTensors<TypeParam>(problem);
    RunKernels<TypeParam>(problem, t);
    EXPECT_EQ(Rows(t.context, columns, 0, 3), std::vector<float>(3 * columns, 0.0f));
    EXPECT_EQ(Rows(t.d_q, columns, 0, 3), std::vector<float>(3 * columns, 0.0f));
    EXPECT_EQ(t.log_sum_exp[0], -std::numeric_limits<float>::infinity());
  }
}

TEST(CudaAttentionDispatchTest, TensorCoresAreForBFloat16AndHeadsThatFitTheirTiles) {
  for (const int64_t width : {32, 64, 128}) {
    EXPECT_TRUE(cuda::OnTensorCores<BFloat16>(width));
    EXPECT_FALSE(cuda::OnTensorCores<float>(width));
  }
  for (const int64_t width : {1, 16, 24, 40, 96}) EXPECT_FALSE(cuda::OnTensorCores<BFloat16>(width));
}

TEST(CudaAttentionTilesTest, CutAtSentencesAndTileRows) {
  const cuda::AttentionTiles tiles = cuda::CutIntoTiles({0, 33, 33, 40}, {0, 5, 9, 9});
  ASSERT_EQ(tiles.of_queries.size(), 3);
  EXPECT_EQ(tiles.of_queries[1].first, 32);
  EXPECT_EQ(tiles.of_queries[1].rows, 1);
  EXPECT_EQ(tiles.of_queries[1].key_end, 5);
  EXPECT_EQ(tiles.of_queries[2].first, 33);
  EXPECT_EQ(tiles.of_queries[2].key_begin, 9);
  ASSERT_EQ(tiles.of_keys.size(), 2);
  EXPECT_EQ(tiles.of_keys[1].query_begin, 33);
  EXPECT_EQ(tiles.of_keys[1].query_end, 33);
}

}  // namespace
}  // namespace hadal
