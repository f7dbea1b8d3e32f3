#include "kernels/cuda/operations.h"

#include <bit>
#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "tests/support/kernel_device.h"
#include "tests/support/random_inputs.h"

namespace hadal::testing {
namespace {

struct Case {
  int64_t rows, width;
  Placement from, to;
};
const Case kCases[] = {{1, 1, {}, {}}, {5, 7, {3, 2}, {1, 4}}, {33, 40, {}, {}}, {2, 1030, {0, 2}, {8, 2}}};

TEST(CudaConvertTest, RoundsToTheNearestAndWidensExactly) {
  for (const Case& c : kCases) {
    KernelDevice device(/*seed=*/1);
    const std::vector<float> values = NormalValues(c.rows * c.width, 1);
    DeviceMatrixOf<float> wide(device, values, c.rows, c.width, c.from);
    DeviceMatrixOf<BFloat16> narrow(device, std::vector<float>(values.size()), c.rows, c.width, c.to);
    cuda::Convert(device.stream(), {.from = wide.view(), .to = narrow.view()});
    EXPECT_EQ(narrow.dense(), Rounded<BFloat16>(values));
    EXPECT_TRUE(narrow.guards_intact());
    cuda::Convert(device.stream(), {.from = narrow.view(), .to = wide.view()});
    EXPECT_EQ(wide.dense(), Rounded<BFloat16>(values));
    EXPECT_TRUE(wide.guards_intact());
  }
}

// Halfway between two neighbours: to the even one. The largest floats become infinite, a NaN stays one. As the host's.
TEST(CudaConvertTest, EdgesAreTheHosts) {
  const auto of = [](uint32_t bits) { return std::bit_cast<float>(bits); };
  const std::vector<float> values = {
      of(0x3F808000), of(0x3F818000), of(0x3F808001), of(0x3F807FFF),
      of(0x7F7FFFFF), of(0x00000001), of(0x80000000), std::numeric_limits<float>::infinity()};
  KernelDevice device(/*seed=*/1);
  DeviceMatrixOf<float> wide(device, values, 1, 8, {});
  DeviceMatrixOf<BFloat16> narrow(device, std::vector<float>(8), 1, 8, {});
  cuda::Convert(device.stream(), {.from = wide.view(), .to = narrow.view()});
  const std::vector<float> found = narrow.dense();
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(found[i], Widened(RoundedToBFloat16(values[i]))) << i;
  EXPECT_EQ(found[0], of(0x3F800000));
  EXPECT_EQ(found[1], of(0x3F820000));
  EXPECT_EQ(found[2], of(0x3F810000));
  EXPECT_TRUE(std::isinf(found[4]));
  EXPECT_TRUE(std::isnan(Widened(RoundedToBFloat16(std::numeric_limits<float>::quiet_NaN()))));
}

}  // namespace
}  // namespace hadal::testing
