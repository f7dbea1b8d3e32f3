#include "kernels/cached_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/attention_reference.h"
#include "tests/support/each_instruction_set.h"
#include "tests/support/random_inputs.h"
#include "tests/support/strided_matrix.h"

namespace hadal {
namespace {

using testing::NearReference;
using testing::NormalValues;
using testing::SameBits;
using testing::StridedMatrix;
using testing::Widen;

// Hypotheses whose positions are scattered over the cache, some shared, as beam search leaves them.
struct Problem {
  Problem(std::vector<int32_t> lengths, int32_t heads, int64_t head_width)
      : lengths(std::move(lengths)), heads(heads), columns(heads * head_width) {
    for (const int32_t length : this->lengths) index_stride = std::max<int64_t>(index_stride, length + 2);
    index.assign(hypotheses() * index_stride, -1);  // -1: never to be read
    for (int64_t i = 0; i < hypotheses(); ++i) {
      for (int32_t p = 0; p < this->lengths[i]; ++p) index[i * index_stride + p] = (p * 37 + i / 2 * 11) % kCacheRows;
    }
    q = NormalValues(hypotheses() * columns, 1);
    cache = NormalValues(kCacheRows * 2 * columns, 2);
  }
  int64_t hypotheses() const { return static_cast<int64_t>(lengths.size()); }

  static constexpr int64_t kCacheRows = 101;
  std::vector<int32_t> lengths;
  int32_t heads;
  int64_t columns;
  int64_t index_stride = 0;
  std::vector<int32_t> index;
  std::vector<float> q, cache;
};

std::vector<float> Attend(const Stream& stream, const Problem& problem, int64_t misalignment = 1) {
  const int64_t rows = problem.hypotheses();
  StridedMatrix q(problem.q, rows, problem.columns, misalignment);
  StridedMatrix cache(problem.cache, Problem::kCacheRows, 2 * problem.columns, misalignment);
  StridedMatrix output(std::vector<float>(rows * problem.columns), rows, problem.columns, misalignment);
  std::vector<float> scratch(stream.threads() * problem.index_stride, std::numeric_limits<float>::quiet_NaN());
  CachedAttention(stream, {.q = q.view(),
                           .cache = cache.view(),
                           .index = {problem.index.data(), static_cast<int64_t>(problem.index.size())},
                           .index_stride = problem.index_stride,
                           .lengths = {problem.lengths.data(), rows},
                           .heads = problem.heads,
                           .output = output.view(),
                           .scratch = {scratch.data(), static_cast<int64_t>(scratch.size())}});
  EXPECT_TRUE(output.guards_intact());
  return output.dense();
}

// The same by the full attention's reference: each hypothesis is a sentence of one query.
std::vector<double> Reference(const Problem& problem) {
  testing::AttentionReferenceProblem reference = {.query_offsets = {0},
                                                  .key_offsets = {0},
                                                  .heads = problem.heads,
                                                  .head_width = problem.columns / problem.heads,
                                                  .q = Widen(problem.q)};
  for (int64_t i = 0; i < problem.hypotheses(); ++i) {
    reference.query_offsets.push_back(static_cast<int32_t>(i + 1));
    reference.key_offsets.push_back(reference.key_offsets.back() + problem.lengths[i]);
    for (int32_t p = 0; p < problem.lengths[i]; ++p) {
      const float* row = &problem.cache[problem.index[i * problem.index_stride + p] * 2 * problem.columns];
      reference.k.insert(reference.k.end(), row, row + problem.columns);
      reference.v.insert(reference.v.end(), row + problem.columns, row + 2 * problem.columns);
    }
  }
  return AttentionReference(reference).output;
}

std::vector<Problem> Problems() {
  return {Problem({1}, 1, 1), Problem({1, 5, 16, 3}, 5, 3), Problem({33, 2, 100, 17, 1}, 4, 16),
          Problem({20, 21, 22}, 2, 24), Problem({40, 7}, 8, 64)};
}

TEST(CachedAttentionTest, MatchesTheReference) {
  testing::ForEachInstructionSet([] {
    for (const Problem& problem : Problems()) {
      SCOPED_TRACE(::testing::Message() << problem.heads << " heads, " << problem.columns << " columns");
      EXPECT_TRUE(NearReference(Attend(Stream::Cpu(1), problem), Reference(problem), 1, 64));
    }
  });
}

TEST(CachedAttentionTest, ThreadsNeighboursAndAlignmentChangeNoBit) {
  for (const Problem& problem : Problems()) {
    const std::vector<float> expected = Attend(Stream::Cpu(1), problem);
    for (const int threads : {1, 2, 3}) {
      EXPECT_TRUE(SameBits(Attend(Stream::Cpu(threads), problem, 0), expected));
    }
    Problem last = problem;
    last.lengths = {problem.lengths.back()};
    last.index.assign(problem.index.end() - problem.index_stride, problem.index.end());
    last.q.assign(problem.q.end() - problem.columns, problem.q.end());
    EXPECT_TRUE(SameBits(Attend(Stream::Cpu(1), last), {expected.end() - problem.columns, expected.end()}));
  }
}

TEST(CachedAttentionTest, PlacesInTheCacheChangeNoBit) {
  const Problem problem({30, 12}, 4, 16);
  Problem moved = problem;
  const int64_t width = 2 * problem.columns;
  for (int64_t row = 0; row < Problem::kCacheRows; ++row) {  // cache row r moves to the mirrored place
    std::copy_n(&problem.cache[row * width], width, &moved.cache[(Problem::kCacheRows - 1 - row) * width]);
  }
  for (int32_t& row : moved.index) row = row < 0 ? row : static_cast<int32_t>(Problem::kCacheRows - 1 - row);
  EXPECT_TRUE(SameBits(Attend(Stream::Cpu(1), moved), Attend(Stream::Cpu(1), problem)));
}

TEST(CachedAttentionTest, LargeScoresStayFinite) {
  Problem problem({30}, 2, 16);
  for (float& x : problem.q) x *= 1e10f;
  testing::ForEachInstructionSet([&] {
    for (const float value : Attend(Stream::Cpu(1), problem)) EXPECT_TRUE(std::isfinite(value));
  });
}

TEST(CachedAttentionDeathTest, RejectsARowOutsideTheCache) {
  Problem problem({3}, 1, 4);
  problem.index[1] = 101;
  EXPECT_DEATH(Attend(Stream::Cpu(1), problem), "101 vs. 101");
  problem.index[1] = -1;
  EXPECT_DEATH(Attend(Stream::Cpu(1), problem), "-1 vs. 0");
  problem.lengths = {6};
  EXPECT_DEATH(Attend(Stream::Cpu(1), problem), "6 vs. 5");
  problem.lengths = {0};
  EXPECT_DEATH(Attend(Stream::Cpu(1), problem), "0 vs. 1");
}

}  // namespace
}  // namespace hadal
