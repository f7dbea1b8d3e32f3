#include "kernels/cuda/cached_attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/kernel_device.h"
#include "tests/support/random_inputs.h"

namespace hadal {
namespace {

using testing::DeviceMatrixOf;
using testing::DeviceVectorOf;
using testing::KernelDevice;
using testing::NormalValues;
using testing::Placement;
using testing::Rounded;

constexpr int64_t kCacheRows = 211;

struct Case {
  std::vector<int32_t> lengths;
  int64_t heads, head_width;
  Placement place;
};
const Case kCases[] = {
    {{1}, 1, 1, {}}, {{3, 1, 17}, 3, 5, {3, 2}}, {{127, 128, 129, 2}, 2, 64, {}}, {{300, 5}, 1, 128, {1, 1}}};

// The cache row of position p of row i: scattered, some shared.
int32_t CacheRow(int64_t i, int64_t p) { return static_cast<int32_t>((p * 37 + i / 2 * 11) % kCacheRows); }

template <typename T>
struct Inputs {
  explicit Inputs(const Case& c) : width(c.heads * c.head_width) {
    for (const int32_t length : c.lengths) stride = std::max<int64_t>(stride, length + 2);
    for (int64_t i = 0; i < std::ssize(c.lengths); ++i) {
      for (int64_t p = 0; p < stride; ++p)
        index.push_back(p < c.lengths[i] ? CacheRow(i, p) : -1);  // -1: not to be read
    }
    q = Rounded<T>(NormalValues(std::ssize(c.lengths) * width, 1));
    cache = Rounded<T>(NormalValues(kCacheRows * 2 * width, 2));
  }
  int64_t width, stride = 0;
  std::vector<int32_t> index;
  std::vector<float> q, cache;
};

template <typename T>
std::vector<float> Attend(const Case& c, const Inputs<T>& in, uint64_t seed) {
  KernelDevice device(seed);
  const auto rows = static_cast<int64_t>(c.lengths.size());
  DeviceMatrixOf<T> q(device, in.q, rows, in.width, c.place);
  DeviceMatrixOf<T> cache(device, in.cache, kCacheRows, 2 * in.width, c.place);
  DeviceMatrixOf<T> output(device, std::vector<float>(in.q.size(), NAN), rows, in.width, c.place);
  DeviceVectorOf<int32_t> index(device, in.index), lengths(device, c.lengths);
  cuda::CachedAttention<T>(device.stream(), {.rows = rows,
                                             .heads = c.heads,
                                             .head_width = c.head_width,
                                             .q = q.view(),
                                             .cache = cache.view(),
                                             .index = index.data(),
                                             .index_stride = in.stride,
                                             .lengths = lengths.data(),
                                             .output = output.view()});
  EXPECT_TRUE(output.guards_intact());
  return output.dense();
}

// Of element (row, column), in double.
template <typename T>
double Reference(const Case& c, const Inputs<T>& in, int64_t row, int64_t column) {
  const int64_t head = column / c.head_width * c.head_width;
  std::vector<double> scores;
  for (int64_t p = 0; p < c.lengths[row]; ++p) {
    double dot = 0;
    for (int64_t j = head; j < head + c.head_width; ++j) {
      dot += static_cast<double>(in.q[row * in.width + j]) * in.cache[CacheRow(row, p) * 2 * in.width + j];
    }
    scores.push_back(dot / std::sqrt(static_cast<double>(c.head_width)));
  }
  const double maximum = *std::max_element(scores.begin(), scores.end());
  double sum = 0, output = 0;
  for (int64_t p = 0; p < c.lengths[row]; ++p) {
    const double weight = std::exp(scores[p] - maximum);
    sum += weight;
    output += weight * in.cache[(CacheRow(row, p) * 2 + 1) * in.width + column];
  }
  return output / sum;
}

// T: how q, cache and output are stored.
template <typename T>
class CudaCachedAttentionTest : public ::testing::Test {};
using StoredTypes = ::testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(CudaCachedAttentionTest, StoredTypes);

TYPED_TEST(CudaCachedAttentionTest, IsSoftmaxAttentionOverTheCachedRows) {
  // A output rounded to bf16 is off by half of its last bit at most.
  const double rounding = sizeof(TypeParam) == sizeof(float) ? 0 : std::ldexp(1.0, -8);
  for (const Case& c : kCases) {
    const Inputs<TypeParam> in(c);
    const std::vector<float> output = Attend(c, in, /*seed=*/1);
    for (int64_t i = 0; i < std::ssize(output); ++i) {
      const double reference = Reference(c, in, i / in.width, i % in.width);
      ASSERT_NEAR(output[i], reference, 4e-6 + rounding * std::abs(reference)) << "element " << i;
    }
    EXPECT_EQ(Attend(c, in, /*seed=*/2), output) << "another order of threads changes bits";
  }
}

TYPED_TEST(CudaCachedAttentionTest, NeighboursChangeNoBitOfARow) {
  for (Case c : kCases) {
    const Inputs<TypeParam> all(c);
    const std::vector<float> together = Attend(c, all, /*seed=*/1);
    Case first = c;
    first.lengths.resize(1);
    const Inputs<TypeParam> alone(first);
    const std::vector<float> row = Attend(first, alone, /*seed=*/3);
    // The same first query and cache: NormalValues' streams begin alike.
    EXPECT_TRUE(std::equal(row.begin(), row.end(), together.begin()));
  }
}

}  // namespace
}  // namespace hadal
