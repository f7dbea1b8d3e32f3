// Copies between strided matrices and the dense, padded tiles that small_product-inl.h multiplies.
//
//   CopyTile            to[i, j] = from[i, j], columns padded with zeros to whole vectors
//   TransposeTile       to[j, i] = scale · from[i, j], rows padded with zeros to whole vectors
//   StoreScaledRow      to[j] = scale · from[j]
//
// A Highway "-inl" header: see dropout-inl.h. Thread-safe; allocates nothing.

#if defined(HADAL_KERNELS_CPU_TILE_COPY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HADAL_KERNELS_CPU_TILE_COPY_INL_H_
#undef HADAL_KERNELS_CPU_TILE_COPY_INL_H_
#else
#define HADAL_KERNELS_CPU_TILE_COPY_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/partial_vector-inl.h"
#include "runtime/tensor.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// `count` rounded up to whole vectors.
HWY_INLINE int64_t RoundUpToLanes(int64_t count) {
  const int64_t lanes = hn::Lanes(hn::ScalableTag<float>());
  return (count + lanes - 1) / lanes * lanes;
}

// to is [from.rows, RoundUpToLanes(from.columns)], dense.
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

#if HWY_TARGET != HWY_SCALAR
// Four rows of four: to[j · to_stride + i] = scale · from[i · stride + j].
HWY_INLINE void Transpose4x4(const float* HWY_RESTRICT from, int64_t stride, float scale, float* HWY_RESTRICT to,
                             int64_t to_stride) {
  const hn::FixedTag<float, 4> d;
  const hn::Repartition<double, decltype(d)> d64;
  const auto factor = hn::Set(d, scale);
  const auto r0 = hn::Mul(hn::LoadU(d, from), factor);
  const auto r1 = hn::Mul(hn::LoadU(d, from + stride), factor);
  const auto r2 = hn::Mul(hn::LoadU(d, from + 2 * stride), factor);
  const auto r3 = hn::Mul(hn::LoadU(d, from + 3 * stride), factor);
  const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1));
  const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
  const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
  const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, low01, low23)), d, to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23)), d, to + to_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, high01, high23)), d, to + 2 * to_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23)), d, to + 3 * to_stride);
}
#endif

// Columns [0, RoundUpToLanes(from.rows)) of `to` are written.  REQUIRES: to_stride ≥ that.
HWY_INLINE void TransposeTile(const ConstMatrix& from, float scale, float* HWY_RESTRICT to, int64_t to_stride) {
  int64_t whole_rows = 0, whole_columns = 0;
#if HWY_TARGET != HWY_SCALAR
  whole_rows = from.rows / 4 * 4;
  whole_columns = from.columns / 4 * 4;
  for (int64_t i = 0; i < whole_rows; i += 4) {
    for (int64_t j = 0; j < whole_columns; j += 4) {
      Transpose4x4(from.row(i) + j, from.stride, scale, to + j * to_stride + i, to_stride);
    }
  }
#endif
  for (int64_t i = 0; i < from.rows; ++i) {
    for (int64_t j = i < whole_rows ? whole_columns : 0; j < from.columns; ++j) {
      to[j * to_stride + i] = scale * from.row(i)[j];
    }
  }
  const int64_t padded_rows = RoundUpToLanes(from.rows);
  for (int64_t j = 0; j < from.columns; ++j) {
    for (int64_t i = from.rows; i < padded_rows; ++i) to[j * to_stride + i] = 0.0f;
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
