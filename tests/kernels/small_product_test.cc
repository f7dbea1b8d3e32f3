#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/kernels/small_product_test.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, as Highway asks.
#include "kernels/cpu/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {

int64_t TestedLanes() { return hn::Lanes(hn::ScalableTag<float>()); }

// C (=, +=) A·B on dense matrices; `a` holds A [rows, inner] or its transpose.
void TestedProduct(bool transposed, bool add, const float* a, const float* b, float* c, int64_t rows, int64_t inner,
                   int64_t columns) {
  const SmallProduct p = {a, transposed ? rows : inner, b, columns, c, columns, rows, inner, columns};
  if (transposed) {
    add ? MultiplySmall<SmallProductA::kTransposed, true>(p) : MultiplySmall<SmallProductA::kTransposed, false>(p);
  } else {
    add ? MultiplySmall<SmallProductA::kRowMajor, true>(p) : MultiplySmall<SmallProductA::kRowMajor, false>(p);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "gtest/gtest.h"
#include "tests/support/each_instruction_set.h"
#include "tests/support/random_inputs.h"

namespace hadal {

HWY_EXPORT(TestedLanes);
HWY_EXPORT(TestedProduct);

namespace {

using testing::NearReference;
using testing::NormalValues;
using testing::SameBits;

// A product's operands; `at` is A transposed.
struct Operands {
  Operands(int64_t rows, int64_t inner, int64_t columns)
      : rows(rows),
        inner(inner),
        columns(columns),
        a(NormalValues(rows * inner, 1)),
        at(a.size()),
        b(NormalValues(inner * columns, 2)),
        c(NormalValues(rows * columns, 3)) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t k = 0; k < inner; ++k) at[k * rows + i] = a[i * inner + k];
    }
  }
  std::vector<double> Product(bool add) const {
    std::vector<double> product(c.size());
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        double sum = add ? c[i * columns + j] : 0;
        for (int64_t k = 0; k < inner; ++k) sum += double{a[i * inner + k]} * b[k * columns + j];
        product[i * columns + j] = sum;
      }
    }
    return product;
  }
  int64_t rows, inner, columns;
  std::vector<float> a, at, b, c;
};

std::vector<float> Multiply(const Operands& o, bool transposed, bool add) {
  std::vector<float> c = o.c;
  HWY_DYNAMIC_DISPATCH(TestedProduct)
  (transposed, add, transposed ? o.at.data() : o.a.data(), o.b.data(), c.data(), o.rows, o.inner, o.columns);
  return c;
}

TEST(SmallProductTest, MatchesPlainLoops) {
  testing::ForEachInstructionSet([] {
    const int64_t lanes = HWY_DYNAMIC_DISPATCH(TestedLanes)();
    for (const int64_t rows : {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33}) {
      for (const int64_t inner : {0, 1, 3, 16, 33}) {
        for (const int64_t vectors : {1, 2, 3, 4}) {
          const Operands o(rows, inner, vectors * lanes);
          for (const bool add : {false, true}) {
            SCOPED_TRACE(::testing::Message() << rows << " x " << inner << " x " << vectors << " vectors, add " << add);
            const std::vector<float> product = Multiply(o, /*transposed=*/false, add);
            ASSERT_TRUE(NearReference(product, o.Product(add), 6, 8));
            ASSERT_TRUE(SameBits(Multiply(o, /*transposed=*/true, add), product));
          }
        }
      }
    }
  });
}

TEST(SmallProductTest, CuttingTheInnerDimensionChangesNoBit) {
  testing::ForEachInstructionSet([] {
    const Operands o(13, 29, 3 * HWY_DYNAMIC_DISPATCH(TestedLanes)());
    const auto multiply = HWY_DYNAMIC_DISPATCH(TestedProduct);
    std::vector<float> c = o.c;
    multiply(true, false, o.at.data(), o.b.data(), c.data(), o.rows, 11, o.columns);
    multiply(true, true, o.at.data() + 11 * o.rows, o.b.data() + 11 * o.columns, c.data(), o.rows, 18, o.columns);
    EXPECT_TRUE(SameBits(c, Multiply(o, /*transposed=*/true, /*add=*/false)));
  });
}

}  // namespace
}  // namespace hadal

#endif  // HWY_ONCE
