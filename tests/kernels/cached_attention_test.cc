#include "kernels/cached_attention.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "tests/kernels/cached_attention_problem.h"
#include "tests/support/each_instruction_set.h"
#include "tests/support/random_inputs.h"
#include "tests/support/strided_matrix.h"

namespace hadal {
namespace {

using testing::NearReference;
using testing::NormalValues;
using testing::SameBits;
using testing::StridedMatrix;

using Problem = testing::CachedAttentionProblem;

std::vector<float> Attend(const Stream& stream, const Problem& problem, int64_t misalignment = 1) {
  const int64_t rows = problem.hypotheses();
  StridedMatrix q(problem.q, rows, problem.columns, misalignment);
  StridedMatrix cache(problem.cache, Problem::kCacheRows, problem.cache_columns(), misalignment);
  StridedMatrix output(std::vector<float>(rows * problem.columns), rows, problem.columns, misalignment);
  std::vector<float> scratch(CachedAttentionScratch(stream, problem.index_stride, problem.columns / problem.heads),
                             std::numeric_limits<float>::quiet_NaN());
  CachedAttention(stream, {.q = q.view(),
                           .cache = cache.view(),
                           .index = {problem.index.data(), static_cast<int64_t>(problem.index.size())},
                           .index_stride = problem.index_stride,
                           .lengths = {problem.lengths.data(), rows},
                           .heads = problem.heads,
                           .group = problem.group,
                           .rotary = problem.rotary(),
                           .reach = problem.reach,
                           .output = output.view(),
                           .scratch = {scratch.data(), static_cast<int64_t>(scratch.size())}});
  EXPECT_TRUE(output.guards_intact());
  return output.dense();
}

std::vector<Problem> Problems() {
  return {Problem({1}, 1, 1),
          Problem({1, 5, 16, 3}, 5, 3),
          Problem({33, 2, 100, 17, 1}, 4, 16),
          Problem({20, 21, 22}, 2, 24),
          Problem({40, 7}, 8, 64),
          Problem({3, 20}, 6, 24, 3, 5),
          Problem({40, 7}, 4, 64, 4, 32),
          Problem({33, 2, 100, 17, 1}, 4, 16, 2, 8, 16)};
}

TEST(CachedAttentionTest, MatchesTheReference) {
  testing::ForEachInstructionSet([] {
    for (const Problem& problem : Problems()) {
      SCOPED_TRACE(::testing::Message() << problem.heads << " heads, " << problem.columns << " columns");
      EXPECT_TRUE(NearReference(Attend(Stream::Cpu(1), problem), problem.Reference(), 1, 64));
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
  const int64_t width = problem.cache_columns();
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
  problem.index[1] = 211;
  EXPECT_DEATH(Attend(Stream::Cpu(1), problem), "211 vs. 211");
  problem.index[1] = -1;
  EXPECT_DEATH(Attend(Stream::Cpu(1), problem), "-1 vs. 0");
  problem.lengths = {6};
  EXPECT_DEATH(Attend(Stream::Cpu(1), problem), "6 vs. 5");
  problem.lengths = {0};
  EXPECT_DEATH(Attend(Stream::Cpu(1), problem), "0 vs. 1");
}

}  // namespace
}  // namespace hadal
