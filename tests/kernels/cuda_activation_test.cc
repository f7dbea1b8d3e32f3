#include "kernels/cuda/operations.h"

#include <type_traits>

#include "gtest/gtest.h"
#include "kernels/cuda/dropout.h"
#include "tests/kernels/activation_definition.h"
#include "tests/support/kernel_device.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {
namespace {

template <typename T>
class CudaActivationTest : public ::testing::Test {};
using StoredTypes = ::testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(CudaActivationTest, StoredTypes);

TYPED_TEST(CudaActivationTest, MatchesTheDefinition) {
  using T = TypeParam;
  const double roundoff = std::is_same_v<T, float> ? 0 : kBFloat16Roundoff;
  ForEachActivationCase([&](const ActivationCase& c) {
    for (const Placement& place : {Placement{}, Placement{3, 5}}) {
      KernelDevice device(/*seed=*/1);
      const std::vector<float> values = Rounded<T>(c.Z()), gradient = Rounded<T>(c.DY());
      const ActivationResults expected = ActivationDefinition(c, Widen(values), Widen(gradient));
      Dropout dropout = c.dropout();
      DeviceVectorOf<RandomPosition> position(device, std::vector{cuda::PositionOf(dropout)});
      dropout.device_position = position.data();
      DeviceMatrixOf<T> z(device, values, c.rows, c.columns(), place), y(device, gradient, c.rows, c.width, place);
      DeviceMatrixOf<T> dz(device, values, c.rows, c.columns(), place);
      cuda::ActivationBackward(device.stream(), {c.activation, c.gated, z.view(), dropout, y.view(), dz.view()});
      cuda::ActivationForward(device.stream(), {c.activation, c.gated, z.view(), dropout, y.view()});
      EXPECT_TRUE(NearReference(y.dense(), expected.y, 16, 8, roundoff));
      EXPECT_TRUE(NearReference(dz.dense(), expected.dz, 32, 8, roundoff));
      EXPECT_TRUE(y.guards_intact() && dz.guards_intact());
    }
  });
}

}  // namespace
}  // namespace hadal::testing
