#include "kernels/cpu/row_product.h"

#include <algorithm>

#include "kernels/cpu/linear_epilogue.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/row_product.cc"
#include "hwy/foreach_target.h"
// Must be included after foreach_target.h.
#include "hwy/cache_control.h"
#include "kernels/cpu/columns-inl.h"
#include "kernels/cpu/partial_vector-inl.h"
#include "kernels/cpu/small_product-inl.h"
#include "kernels/cpu/tile_copy-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kLanes = hn::MaxLanes(FloatTag());
// A panel of weights, at most 64 KiB, stays in the L2 cache; a tile of y stays in registers while the panel's terms are
// added.
constexpr int64_t kPanelTerms = 512, kPanelColumns = 2 * kLanes;
constexpr int64_t kEdgeRows = 64;

// p without the columns after its last whole vector.
template <bool kAdd>
void MultiplyWholeVectors(SmallProduct p) {
  p.columns = p.columns / kLanes * kLanes;
  if (p.columns > 0) MultiplySmall<SmallProductA::kRowMajor, kAdd>(p);
}

// The columns of p after its last whole vector, by a buffer of whole vectors. REQUIRES: B is readable up to whole
// vectors.
template <bool kAdd>
void MultiplyEdge(SmallProduct p) {
  const FloatTag d;
  const int64_t whole = p.columns / kLanes * kLanes, count = p.columns - whole;
  if (count == 0) return;
  HWY_ALIGN float edge[kEdgeRows * kLanes];
  float* const c = p.c + whole;
  SmallProduct part = p;
  part.b += whole, part.c = edge, part.c_stride = part.columns = kLanes;
  for (int64_t row = 0; row < p.rows; row += kEdgeRows) {
    part.a = p.a + row * p.a_stride, part.rows = std::min(kEdgeRows, p.rows - row);
    for (int64_t i = 0; kAdd && i < part.rows; ++i) {
      hn::Store(LoadPartial(d, c + (row + i) * p.c_stride, count, 0.0f), d, edge + i * kLanes);
    }
    MultiplySmall<SmallProductA::kRowMajor, kAdd>(part);
    for (int64_t i = 0; i < part.rows; ++i) {
      StorePartial(d, hn::Load(d, edge + i * kLanes), c + (row + i) * p.c_stride, count);
    }
  }
}

// y = or += x·Wᵀ.
template <bool kAdd>
void Multiply(const ConstMatrix& x, const ConstMatrix& weight, const Matrix& y) {
  HWY_ALIGN float panel[kPanelTerms * kPanelColumns];
  for (int64_t column = 0; column < y.columns; column += kPanelColumns) {
    const int64_t columns = std::min(kPanelColumns, y.columns - column);
    TransposeTile(weight.Rows(column, columns), 1.0f, panel, kPanelColumns);
    const SmallProduct p{.a = x.data,
                         .a_stride = x.stride,
                         .b = panel,
                         .b_stride = kPanelColumns,
                         .c = y.row(0) + column,
                         .c_stride = y.stride,
                         .rows = x.rows,
                         .inner = x.columns,
                         .columns = columns};
    MultiplyWholeVectors<kAdd>(p);
    MultiplyEdge<kAdd>(p);
  }
}

// Columns [column, column + lanes) of y = x·Wᵀ, of kRows rows. kClamp: only the columns that y has. REQUIRES:
// x.columns a multiple of 4.
template <int kRows, bool kClamp>
HWY_INLINE void MultiplyFewRowsTile(const ConstMatrix& x, const ConstMatrix& weight, const Matrix& y, int64_t column) {
  const FloatTag d;
  FloatVec sums[kRows];
  for (int i = 0; i < kRows; ++i) sums[i] = hn::Zero(d);
  for (int64_t k = 0; k < x.columns; k += 4) {
    // Hardware prefetchers do not follow so many rows. Every 16 terms: one line of each row of the next tile.
    for (int64_t i = 0; i < kLanes / 4; ++i) {
      hwy::Prefetch(weight.row(std::min(column + kLanes + k % 16 / 4 * (kLanes / 4) + i, weight.rows - 1)) + k);
    }
    FourColumns terms;
    LoadFourColumns<kClamp>(weight, column, k, terms);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) sums[i] = hn::MulAdd(hn::Set(d, x.row(i)[k + j]), terms[j], sums[i]);
    }
  }
  for (int i = 0; i < kRows; ++i) {
    if constexpr (kClamp) {
      StorePartial(d, sums[i], y.row(i) + column, y.columns - column);
    } else {
      hn::StoreU(sums[i], d, y.row(i) + column);
    }
  }
}

// As Multiply<false>, for up to kRows rows; weights are transposed in registers and loaded once. Returns false if x has
// more rows, or a number of columns that is no multiple of 4.
template <int kRows>
bool TryFewRows(const ConstMatrix& x, const ConstMatrix& weight, const Matrix& y) {
  if constexpr (kRows > 0) {
    if (x.rows != kRows) return TryFewRows<kRows - 1>(x, weight, y);
    if (x.columns % 4 != 0) return false;
    int64_t column = 0;
    for (; column + kLanes <= y.columns; column += kLanes) MultiplyFewRowsTile<kRows, false>(x, weight, y, column);
    if (column < y.columns) MultiplyFewRowsTile<kRows, true>(x, weight, y, column);
    return true;
  }
  return false;
}

}  // namespace

// y = x·Wᵀ.
void RowProductOf(const ConstMatrix& x, const ConstMatrix& weight, const Matrix& y) {
  if (TryFewRows<8>(x, weight, y)) return;
  for (int64_t first = 0; first < x.columns; first += kPanelTerms) {
    const int64_t terms = std::min(kPanelTerms, x.columns - first);
    (first == 0 ? Multiply<false> : Multiply<true>)(x.Columns(first, terms), weight.Columns(first, terms), y);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace hadal {

HWY_EXPORT(RowProductOf);

void cpu::RowProduct(const Stream& stream, const LinearForwardArgs& args) {
  const ConstMatrix x = args.x.floats(), weight = args.weight.floats();
  stream.ForRanges(args.y.columns, /*grain=*/16, [&](int64_t begin, int64_t end) {
    LinearForwardArgs part = args;
    part.y = args.y.floats().Columns(begin, end - begin);
    if (!args.bias.empty()) part.bias = ConstVector{args.bias.floats().data + begin, end - begin};
    HWY_DYNAMIC_DISPATCH(RowProductOf)(x, weight.Rows(begin, end - begin), part.y.floats());
    ApplyLinearEpilogue(part, 0, x.rows);
  });
}

}  // namespace hadal

#endif  // HWY_ONCE
