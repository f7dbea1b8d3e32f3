// Products of small matrices in the L1 and L2 caches: the six products of attention and its gradient.
//
//   MultiplySmall:  C[rows, columns] (=, or += with kAdd)  A[rows, inner] · B[inner, columns]
//
// product.h copies its operands, which does not repay in a head's product of width 16.
// Method: blocks of kBlockRows x 2 vectors of C stay in registers; an element of A is broadcast, a row of B is
// contiguous.
// Numerics: every element of C is one chain of fused multiply-adds (without FMA: product, then sum) in ascending order
// of `inner`, starting from 0 or from C. The size of blocks, the vector width, and splitting `inner` over several calls
// do not change any bit. REQUIRES: C overlaps neither A nor B.
// A Highway "-inl" header, compiled once per instruction set: see dropout-inl.h. Thread-safe; allocates nothing.

#if defined(HADAL_KERNELS_CPU_SMALL_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HADAL_KERNELS_CPU_SMALL_PRODUCT_INL_H_
#undef HADAL_KERNELS_CPU_SMALL_PRODUCT_INL_H_
#else
#define HADAL_KERNELS_CPU_SMALL_PRODUCT_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

enum class SmallProductA {
  kRowMajor,    // A[i, k] = a[i · a_stride + k]
  kTransposed,  // A[i, k] = a[k · a_stride + i]
};

struct SmallProduct {
  const float* a;
  int64_t a_stride;
  const float* b;  // B[k, j] = b[k · b_stride + j]
  int64_t b_stride;
  float* c;  // C[i, j] = c[i · c_stride + j]
  int64_t c_stride;
  int64_t rows, inner;
  int64_t columns;  // REQUIRES: a multiple of the vector's lanes
};

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4  // 16 vector registers
inline constexpr int kBlockRows = 6;
#else
inline constexpr int kBlockRows = 8;
#endif

// One block of C, held in registers.
template <SmallProductA kA, bool kAdd, int kRows, int kVectors>
HWY_INLINE void MultiplyBlock(const SmallProduct& p, int64_t row, int64_t column) {
  const hn::ScalableTag<float> d;
  using Vec = hn::Vec<decltype(d)>;
  const int64_t lanes = hn::Lanes(d);
  constexpr bool kTransposed = kA == SmallProductA::kTransposed;
  const float* HWY_RESTRICT a = p.a + (kTransposed ? row : row * p.a_stride);
  const float* HWY_RESTRICT b = p.b + column;
  float* HWY_RESTRICT c = p.c + row * p.c_stride + column;
  const int64_t row_step = kTransposed ? 1 : p.a_stride;
  const int64_t inner_step = kTransposed ? p.a_stride : 1;

  Vec sums[kRows][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      sums[i][v] = kAdd ? hn::LoadU(d, c + i * p.c_stride + v * lanes) : hn::Zero(d);
    }
  }
  for (int64_t k = 0; k < p.inner; ++k) {
    Vec b_row[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) b_row[v] = hn::LoadU(d, b + v * lanes);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const Vec a_element = hn::Set(d, a[i * row_step]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[i][v] = hn::MulAdd(a_element, b_row[v], sums[i][v]);
    }
    a += inner_step;
    b += p.b_stride;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[i][v], d, c + i * p.c_stride + v * lanes);
  }
}

// The last rows, fewer than a block. The recursion selects the template for the run-time value `rows`.
template <SmallProductA kA, bool kAdd, int kRows, int kVectors>
HWY_INLINE void MultiplyLastRows(const SmallProduct& p, int64_t row, int64_t column, int64_t rows) {
  if constexpr (kRows > 0) {
    if (rows == kRows) return MultiplyBlock<kA, kAdd, kRows, kVectors>(p, row, column);
    MultiplyLastRows<kA, kAdd, kRows - 1, kVectors>(p, row, column, rows);
  }
}

template <SmallProductA kA, bool kAdd, int kVectors>
HWY_INLINE void MultiplyColumns(const SmallProduct& p, int64_t column) {
  constexpr int kTallRows = kBlockRows * 2 / kVectors;  // blocks one vector wide have twice the rows
  int64_t row = 0;
  for (; row + kTallRows <= p.rows; row += kTallRows) MultiplyBlock<kA, kAdd, kTallRows, kVectors>(p, row, column);
  if (kTallRows > kBlockRows && row + kBlockRows <= p.rows) {
    MultiplyBlock<kA, kAdd, kBlockRows, kVectors>(p, row, column);
    row += kBlockRows;
  }
  MultiplyLastRows<kA, kAdd, kBlockRows - 1, kVectors>(p, row, column, p.rows - row);
}

template <SmallProductA kA, bool kAdd>
HWY_NOINLINE void MultiplySmall(const SmallProduct& p) {
  const int64_t lanes = hn::Lanes(hn::ScalableTag<float>());
  int64_t column = 0;
  for (; column + 2 * lanes <= p.columns; column += 2 * lanes) MultiplyColumns<kA, kAdd, 2>(p, column);
  if (column < p.columns) MultiplyColumns<kA, kAdd, 1>(p, column);
}

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
