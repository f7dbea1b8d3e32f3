#include "kernels/cuda/top_candidates.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/scatter_rows.h"
#include "tests/support/kernel_device.h"
#include "tests/support/random_inputs.h"
#include "tests/support/top_candidates_reference.h"

namespace hadal {
namespace {

using testing::DeviceMatrixOf;
using testing::DeviceVectorOf;
using testing::KernelDevice;
using testing::NormalValues;
using testing::Rounded;
using testing::TopCandidatesReference;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

void ExpectReference(const std::vector<float>& logits, int64_t rows, int64_t columns, int32_t count) {
  KernelDevice device(/*seed=*/1);
  const auto also = static_cast<int32_t>(columns / 2);
  DeviceMatrixOf<float> z(device, logits, rows, columns, {1, 2}),
      values(device, std::vector<float>(rows * count), rows, count, {});
  DeviceVectorOf<int32_t> tokens(device, rows * count), best(device, rows);
  DeviceVectorOf<float> also_values(device, rows);
  cuda::TopCandidates(device.stream(), {.logits = z.view(),
                                        .also = also,
                                        .tokens = {tokens.data(), rows, count},
                                        .values = values.view(),
                                        .also_values = also_values.view(),
                                        .best = best.view()});
  const std::vector<int32_t> found = tokens.Read(), of_best = best.Read();
  const std::vector<float> of_found = values.dense(), of_also = also_values.Read();
  for (int64_t i = 0; i < rows; ++i) {
    const float* const row = logits.data() + i * columns;
    const std::vector<int32_t> expected = TopCandidatesReference(row, columns, count);
    EXPECT_EQ(std::vector<int32_t>(found.begin() + i * count, found.begin() + (i + 1) * count), expected)
        << "row " << i << " of " << columns;
    EXPECT_EQ(of_best[i], std::max(expected[0], 0));
    for (int32_t k = 0; k < count; ++k)
      EXPECT_EQ(of_found[i * count + k], expected[k] >= 0 ? row[expected[k]] : -kInfinity);
    EXPECT_TRUE(of_also[i] == row[also] || (std::isnan(of_also[i]) && std::isnan(row[also])));
  }
}

TEST(CudaTopCandidatesTest, EqualsSorting) {
  for (const int64_t columns : {1, 5, 33, 256, 1000}) {
    for (const int32_t count : {1, 4, 11, 40}) ExpectReference(NormalValues(3 * columns, 3), 3, columns, count);
  }
}

TEST(CudaTopCandidatesTest, EqualLogitsComeInColumnOrderAndNaNNever) {
  std::vector<float> logits = NormalValues(4 * 600, 7);
  for (float& z : logits) z = std::round(2 * z);
  ExpectReference(logits, 4, 600, 12);
  for (size_t v = 0; v < logits.size(); v += 3) logits[v] = NAN;
  ExpectReference(logits, 4, 600, 12);
  ExpectReference(std::vector<float>(70, NAN), 1, 70, 4);
  ExpectReference(std::vector<float>(100, -kInfinity), 1, 100, 5);
}

template <typename T>
class CudaScatterRowsTest : public ::testing::Test {};
using StoredTypes = ::testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(CudaScatterRowsTest, StoredTypes);

TYPED_TEST(CudaScatterRowsTest, RowsGoWhereTheyAreSent) {
  using T = TypeParam;
  for (const int64_t width : {1, 7, 300}) {
    KernelDevice device(/*seed=*/1);
    const std::vector<int32_t> index = {4, 0, 7};
    const std::vector<float> x = Rounded<T>(NormalValues(3 * width, 1));
    const std::vector<float> before = Rounded<T>(NormalValues(8 * width, 2));
    DeviceMatrixOf<T> from(device, x, 3, width, {1, 3}), to(device, before, 8, width, {2, 1});
    DeviceVectorOf<int32_t> places(device, index);
    cuda::ScatterRows(device.stream(), {.x = from.view(), .device_index = places.data(), .y = to.view()});
    std::vector<float> expected = before;
    for (int64_t i = 0; i < 3; ++i) std::copy_n(&x[i * width], width, &expected[index[i] * width]);
    EXPECT_EQ(to.dense(), expected);
    EXPECT_TRUE(to.guards_intact());
  }
}

}  // namespace
}  // namespace hadal
