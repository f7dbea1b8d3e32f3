#include "runtime/tensor.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace hadal {
namespace {

TEST(AnyMatrixTest, PartsKeepTheirStorageAndPlace) {
  std::vector<BFloat16> values(5 * 8);
  const AnyMatrix whole(values.data(), 5, 8, Storage::kBFloat16);
  EXPECT_EQ(whole.bytes(), 5 * 8 * 2);
  const ConstAnyMatrix part = whole.Rows(1, 3).Columns(2, 4);
  EXPECT_EQ(part.data, values.data() + 1 * 8 + 2);
  EXPECT_EQ(part.of<BFloat16>().row(1), values.data() + 2 * 8 + 2);
  EXPECT_EQ(part.rows, 3);
  EXPECT_EQ(part.columns, 4);
  EXPECT_EQ(part.stride, 8);
}

TEST(AnyMatrixTest, TypedViewsSayTheirStorage) {
  std::vector<float> values(6);
  const Matrix floats(values.data(), 2, 3);
  const ConstAnyMatrix any = floats;
  EXPECT_EQ(any.storage, Storage::kFloat32);
  EXPECT_EQ(any.floats().data, values.data());
  EXPECT_EQ(ConstAnyVector(Vector(values.data(), 6)).floats().size, 6);
  EXPECT_TRUE(AnyMatrix().of<BFloat16>().empty()) << "not given passes as anything";
}

TEST(AnyMatrixDeathTest, AnotherStorageIsABug) {
  std::vector<BFloat16> values(6);
  const AnyMatrix matrix(values.data(), 2, 3, Storage::kBFloat16);
  EXPECT_DEATH(matrix.floats(), "storage");
  EXPECT_DEATH(matrix.Columns(0, 2).bytes(), "stride");
  const ConstAnyVector vector = VectorOf<BFloat16>(values.data(), 6);
  EXPECT_DEATH(vector.floats(), "storage");
}

TEST(BFloat16Test, EveryOneSurvivesAndNaNsStayNaN) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const BFloat16 x{static_cast<uint16_t>(bits)};
    if (std::isnan(Widened(x))) {
      EXPECT_EQ(RoundedToBFloat16(Widened(x)).bits, 0x7FFF);
    } else {
      ASSERT_EQ(RoundedToBFloat16(Widened(x)).bits, x.bits);
    }
  }
  EXPECT_EQ(RoundedToBFloat16(1.0f + 0x1p-8f).bits, 0x3F80) << "halfway, to the even one";
  EXPECT_EQ(RoundedToBFloat16(1.0f + 3 * 0x1p-8f).bits, 0x3F82);
  EXPECT_TRUE(std::isinf(Widened(RoundedToBFloat16(std::numeric_limits<float>::max()))));
}

}  // namespace
}  // namespace hadal
