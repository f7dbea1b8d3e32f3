#include "kernels/cuda/top_candidates.h"

#include "gtest/gtest.h"
#include "kernels/cuda/scatter_rows.h"
#include "tests/support/kernel_device.h"
#include "tests/support/random_inputs.h"
#include "tests/support/top_candidates_reference.h"

namespace hadal {
namespace {

using testing::DeviceMatrixOf;
using testing::DeviceVectorOf;
using testing::ExpectTopCandidates;
using testing::KernelDevice;
using testing::NormalValues;
using testing::Rounded;

TEST(CudaTopCandidatesTest, EqualsSorting) {
  ExpectTopCandidates([](const std::vector<float>& logits, int64_t rows, int64_t count, int32_t also) {
    KernelDevice device(/*seed=*/1);
    const DeviceMatrixOf<float> z(device, logits, rows, std::ssize(logits) / rows, {1, 2}),
        values(device, std::vector<float>(rows * count), rows, count, {});
    const DeviceVectorOf<int32_t> tokens(device, rows * count), best(device, rows);
    const DeviceVectorOf<float> also_values(device, rows);
    cuda::TopCandidates(device.stream(), {.logits = z.view(),
                                          .also = also,
                                          .tokens = {tokens.data(), rows, count},
                                          .values = values.view(),
                                          .also_values = also_values.view(),
                                          .best = best.view()});
    return testing::TopCandidatesResults{tokens.Read(), best.Read(), values.dense(), also_values.Read()};
  });
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
