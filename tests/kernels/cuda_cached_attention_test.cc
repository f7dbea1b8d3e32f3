#include "kernels/cuda/cached_attention.h"

#include <cmath>

#include "gtest/gtest.h"
#include "tests/kernels/cached_attention_problem.h"
#include "tests/support/kernel_device.h"
#include "tests/support/random_inputs.h"

namespace hadal {
namespace {

using testing::DeviceMatrixOf;
using testing::DeviceVectorOf;
using testing::KernelDevice;
using testing::NearReference;
using testing::Placement;
using testing::Rounded;

using Problem = testing::CachedAttentionProblem;

struct Case {
  std::vector<int32_t> lengths;
  int32_t heads;
  int64_t head_width;
  Placement place;
  int32_t group = 1;
  int64_t half = 0;
  int32_t reach = kWholeSentence;
};
const Case kCases[] = {{{1}, 1, 1, {}},
                       {{3, 1, 17}, 3, 5, {3, 2}},
                       {{127, 128, 129, 2}, 2, 64, {}},
                       {{300, 5}, 1, 128, {1, 1}},
                       {{17, 3}, 6, 16, {}, 3, 8},
                       {{5, 9}, 4, 10, {3, 2}, 2, 3},
                       {{200, 7, 60}, 4, 16, {}, 2, 8, 40}};

template <typename T>
Problem ProblemOf(const Case& c) {
  Problem problem(c.lengths, c.heads, c.head_width, c.group, c.half, c.reach);
  problem.q = Rounded<T>(problem.q), problem.cache = Rounded<T>(problem.cache);
  return problem;
}

template <typename T>
std::vector<float> Attend(const Case& c, const Problem& in, uint64_t seed) {
  KernelDevice device(seed);
  const int64_t rows = in.hypotheses();
  const DeviceMatrixOf<T> q(device, in.q, rows, in.columns, c.place);
  const DeviceMatrixOf<T> cache(device, in.cache, Problem::kCacheRows, in.cache_columns(), c.place);
  const DeviceMatrixOf<float> angles(device, in.angles, in.half == 0 ? 0 : in.index_stride, 2 * in.half, {});
  const DeviceMatrixOf<T> output(device, std::vector<float>(in.q.size(), NAN), rows, in.columns, c.place);
  const DeviceVectorOf<int32_t> index(device, in.index), lengths(device, in.lengths);
  cuda::CachedAttention<T>(
      device.stream(),
      {.rows = rows,
       .heads = c.heads,
       .head_width = c.head_width,
       .q = q.view(),
       .cache = cache.view(),
       .index = index.data(),
       .index_stride = in.index_stride,
       .lengths = lengths.data(),
       .output = output.view(),
       .group = c.group,
       .rotary = in.half == 0 ? cuda::DeviceRotary() : cuda::DeviceRotaryOf({ConstMatrix(angles.view())}),
       .reach = c.reach});
  EXPECT_TRUE(output.guards_intact());
  return output.dense();
}

// T: how q, cache and output are stored.
template <typename T>
class CudaCachedAttentionTest : public ::testing::Test {};
using StoredTypes = ::testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(CudaCachedAttentionTest, StoredTypes);

TYPED_TEST(CudaCachedAttentionTest, IsSoftmaxAttentionOverTheCachedRows) {
  const double rounding = sizeof(TypeParam) == sizeof(float) ? 0 : testing::kBFloat16Roundoff;
  for (const Case& c : kCases) {
    const Problem problem = ProblemOf<TypeParam>(c);
    const std::vector<float> output = Attend<TypeParam>(c, problem, /*seed=*/1);
    EXPECT_TRUE(NearReference(output, problem.Reference(), 1, 64, rounding)) << c.heads << " heads of " << c.head_width;
    EXPECT_EQ(Attend<TypeParam>(c, problem, /*seed=*/2), output) << "another order of threads changes bits";
  }
}

TYPED_TEST(CudaCachedAttentionTest, NeighboursChangeNoBitOfARow) {
  for (Case c : kCases) {
    const std::vector<float> together = Attend<TypeParam>(c, ProblemOf<TypeParam>(c), /*seed=*/1);
    c.lengths.resize(1);
    // The same first query and cache: NormalValues' streams begin alike.
    const std::vector<float> row = Attend<TypeParam>(c, ProblemOf<TypeParam>(c), /*seed=*/3);
    EXPECT_TRUE(std::equal(row.begin(), row.end(), together.begin()));
  }
}

}  // namespace
}  // namespace hadal
