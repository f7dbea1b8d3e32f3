// Copies between strided matrices and the dense, padded tiles that attention_tile-inl.h multiplies.
//
//   CopyTile            to[i, j] = from[i, j]; the columns of `to` are padded with zeros to whole vectors
//   TransposeTile       to[j, i] = scale · from[i, j]; the last row of `from` is repeated to fill whole vectors
//   LoadFourColumns     loads four columns of `lanes` rows (the lanes of a vector), transposed in registers
//   StoreScaledRow      to[j] = scale · from[j]
//
// A Highway "-inl" header, compiled once per instruction set: see dropout-inl.h. Thread-safe; allocates nothing.

#if defined(HADAL_KERNELS_CPU_TILE_COPY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HADAL_KERNELS_CPU_TILE_COPY_INL_H_
#undef HADAL_KERNELS_CPU_TILE_COPY_INL_H_
#else
#define HADAL_KERNELS_CPU_TILE_COPY_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/partial_vector-inl.h"
#include "runtime/tensor.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Returns `count` rounded up to a multiple of a vector's lanes.
HWY_INLINE int64_t RoundUpToLanes(int64_t count) {
  const int64_t lanes = hn::Lanes(hn::ScalableTag<float>());
  return (count + lanes - 1) / lanes * lanes;
}

// `to` is [from.rows, RoundUpToLanes(from.columns)], dense.
HWY_INLINE void CopyTile(const ConstMatrix& from, float* HWY_RESTRICT to) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = hn::Lanes(d);
  for (int64_t i = 0; i < from.rows; ++i) {
    const float* row = from.row(i);
    int64_t j = 0;
    for (; j + lanes <= from.columns; j += lanes, to += lanes) hn::StoreU(hn::LoadU(d, row + j), d, to);
    if (j == from.columns) continue;
    hn::StoreU(LoadPartial(d, row + j, from.columns - j, 0.0f), d, to);
    to += lanes;
  }
}

// Returns a vector of four-lane blocks: block b has columns [column, column + 4) of row first + 4·b. kClamp: rows
// beyond the matrix read as its last row; without it they must exist.
template <bool kClamp, class D>
HWY_INLINE hn::Vec<D> LoadRowBlocks(D d, const ConstMatrix& from, int64_t first, int64_t column) {
  if constexpr (hn::MaxLanes(d) == 4) {
    return hn::LoadU(d, from.row(kClamp ? std::min(first, from.rows - 1) : first) + column);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, LoadRowBlocks<kClamp>(half, from, first + hn::MaxLanes(half), column),
                       LoadRowBlocks<kClamp>(half, from, first, column));
  }
}

using FourColumns = hn::Vec<hn::ScalableTag<float> >[4];

// Sets to[j] to column `column + j` of rows [row, row + lanes). kClamp: as in LoadRowBlocks.
template <bool kClamp>
HWY_INLINE void LoadFourColumns(const ConstMatrix& from, int64_t row, int64_t column, FourColumns& to) {
  const hn::ScalableTag<float> d;
  const hn::RepartitionToWide<decltype(d)> wide;
  const auto r0 = LoadRowBlocks<kClamp>(d, from, row, column);
  const auto r1 = LoadRowBlocks<kClamp>(d, from, row + 1, column);
  const auto r2 = LoadRowBlocks<kClamp>(d, from, row + 2, column);
  const auto r3 = LoadRowBlocks<kClamp>(d, from, row + 3, column);
  const auto low01 = hn::BitCast(wide, hn::InterleaveLower(d, r0, r1));
  const auto low23 = hn::BitCast(wide, hn::InterleaveLower(d, r2, r3));
  const auto high01 = hn::BitCast(wide, hn::InterleaveUpper(d, r0, r1));
  const auto high23 = hn::BitCast(wide, hn::InterleaveUpper(d, r2, r3));
  to[0] = hn::BitCast(d, hn::InterleaveLower(wide, low01, low23));
  to[1] = hn::BitCast(d, hn::InterleaveUpper(wide, low01, low23));
  to[2] = hn::BitCast(d, hn::InterleaveLower(wide, high01, high23));
  to[3] = hn::BitCast(d, hn::InterleaveUpper(wide, high01, high23));
}

// Sets row column + j of `to`, j = 0 … 3, at [row, row + lanes) to scale · column `column + j` of these rows of `from`.
template <bool kClamp>
HWY_INLINE void TransposeFourColumns(const ConstMatrix& from, int64_t row, int64_t column, float scale,
                                     float* HWY_RESTRICT to, int64_t to_stride) {
  const hn::ScalableTag<float> d;
  FourColumns columns;
  LoadFourColumns<kClamp>(from, row, column, columns);
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    hn::StoreU(hn::Mul(columns[j], hn::Set(d, scale)), d, to + (column + j) * to_stride + row);
  }
}

// Columns [from.rows, RoundUpToLanes(from.rows)) of `to` repeat the last row. REQUIRES: from.rows ≥ 1; `to_stride`
// covers these columns.
HWY_INLINE void TransposeTile(const ConstMatrix& from, float scale, float* HWY_RESTRICT to, int64_t to_stride) {
  const int64_t padded_rows = RoundUpToLanes(from.rows);
  const int64_t lanes = RoundUpToLanes(1);
  for (int64_t i = 0; i < padded_rows; i += lanes) {
    int64_t j = 0;
    if (i + lanes <= from.rows) {
      for (; j + 4 <= from.columns; j += 4) TransposeFourColumns<false>(from, i, j, scale, to, to_stride);
    }
    for (; j + 4 <= from.columns; j += 4) TransposeFourColumns<true>(from, i, j, scale, to, to_stride);
    for (; j < from.columns; ++j) {
      for (int64_t lane = i; lane < i + lanes; ++lane) {
        to[j * to_stride + lane] = scale * from.row(std::min(lane, from.rows - 1))[j];
      }
    }
  }
}

HWY_INLINE void StoreScaledRow(const float* HWY_RESTRICT from, float scale, float* HWY_RESTRICT to, int64_t columns) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = hn::Lanes(d);
  const auto factor = hn::Set(d, scale);
  int64_t j = 0;
  for (; j + lanes <= columns; j += lanes) hn::StoreU(hn::Mul(hn::LoadU(d, from + j), factor), d, to + j);
  for (; j < columns; ++j) to[j] = from[j] * scale;
}

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
