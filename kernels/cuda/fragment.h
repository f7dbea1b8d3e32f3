// Products of small tiles of BFloat16 on tensor cores, with fp32 sums, and loads of such tiles from shared memory.
//
//   MultiplyAdd                 C[16, 8] += A[16, 16] · B[16, 8]                  mma.sync.m16n8k16
//   LoadMatrices                four 8 x 8 matrices from shared memory            ldmatrix.x4
//   LoadMatricesTransposed      the same, each transposed                         ldmatrix.x4.trans
//
// A tile is distributed over a warp as documented in PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point
// type" and "ldmatrix". With g = lane / 4 and t = lane % 4, two neighbouring elements per word, the first in the lower
// half:
//
//   A      word 0: row g, columns 2t, 2t + 1      word 1: row g + 8      words 2, 3: as 0, 1, columns 2t + 8, 2t + 9
//   B      word 0: rows 2t, 2t + 1 of column g    word 1: rows 2t + 8, 2t + 9
//   C      0, 1: row g, columns 2t, 2t + 1        2, 3: row g + 8
//   8 x 8  row g, columns 2t, 2t + 1; transposed: rows 2t, 2t + 1 of column g. Lanes 8i … 8i + 7 point to the 16-byte
//          rows of matrix i.
//
// On the executor the lanes of a warp synchronise and the same is computed from the same registers, so tests check
// indices.
// Numerics: products of BFloat16 are exact in fp32. The order and rounding of a tensor core's sum of sixteen products
// is not documented: bits are equal on one kind of device, not across kinds. The executor rounds as measured by Fasi et
// al. ("Numerical behavior of NVIDIA tensor cores", PeerJ CS 2021), without guard bits: it adds eight products and the
// sum at once, truncates each below 2^-23 of the largest, and truncates the result to fp32.
// REQUIRES: all lanes of the warp make the same call. sm_80 or later.
#pragma once

#include <cstdint>

#include "kernels/cuda/eight.h"
#include "kernels/cuda/thread_layer.h"
#if !defined(__CUDACC__)
#include <algorithm>
#include <cmath>
#include <limits>
#endif

namespace hadal::cuda {

struct FragmentA {
  uint32_t word[4];
};
struct FragmentB {
  uint32_t word[2];
};
struct FragmentC {
  float v[4] = {};
};

// A lane's words of four 8 x 8 matrices.
struct FourMatrices {
  uint32_t word[4];
};

#if defined(__CUDACC__)

HADAL_DEVICE void MultiplyAdd(FragmentC& c, const FragmentA& a, const FragmentB& b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c.v[0]), "+f"(c.v[1]), "+f"(c.v[2]), "+f"(c.v[3])
      : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "r"(b.word[0]), "r"(b.word[1]));
}

HADAL_DEVICE FourMatrices LoadMatrices(Shared<Vector16> row) {
  FourMatrices m;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m.word[0]), "=r"(m.word[1]), "=r"(m.word[2]), "=r"(m.word[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
  return m;
}

HADAL_DEVICE FourMatrices LoadMatricesTransposed(Shared<Vector16> row) {
  FourMatrices m;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m.word[0]), "=r"(m.word[1]), "=r"(m.word[2]), "=r"(m.word[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
  return m;
}

#else  // the executor

using Lanes = std::array<void*, kWarp>;

inline float LowerHalf(uint32_t word) { return FloatOf(word << 16); }
inline float UpperHalf(uint32_t word) { return FloatOf(word & 0xFFFF0000u); }

struct ProductLane {
  FragmentC* c;
  const FragmentA* a;
  const FragmentB* b;
};

// Returns sum + Σ a[i] · b[i].
inline float EightProductsAndSum(float sum, const float* a, const float* b, int64_t b_stride) {
  double terms[9];
  terms[8] = sum;
  double largest = std::abs(terms[8]);
  for (int i = 0; i < 8; ++i) {
    terms[i] = static_cast<double>(a[i]) * b[i * b_stride];
    largest = std::max(largest, std::abs(terms[i]));
  }
  if (largest == 0.0 || !(largest <= std::numeric_limits<float>::max())) {
    for (int i = 0; i < 8; ++i) sum += static_cast<float>(terms[i]);
    return sum;
  }
  int exponent = 0;
  std::frexp(largest, &exponent);
  const double unit = std::ldexp(1.0, exponent - 1 - 23), units = 1.0 / unit;  // powers of two: exact
  double total = 0;
  for (const double term : terms) total += std::trunc(term * units);
  total *= unit;
  const auto rounded = static_cast<float>(total);
  return std::abs(rounded) > std::abs(total) ? std::nextafter(rounded, 0.0f) : rounded;
}

inline void MultiplyAddTogether(const Lanes& lanes) {
  float a[16][16], b[16][8];
  for (int lane = 0; lane < kWarp; ++lane) {
    const auto& mine = *static_cast<const ProductLane*>(lanes[lane]);
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; ++i) {
      const int row = g + 8 * (i % 2), column = 2 * t + 8 * (i / 2);
      a[row][column] = LowerHalf(mine.a->word[i]), a[row][column + 1] = UpperHalf(mine.a->word[i]);
    }
    for (int i = 0; i < 2; ++i) {
      const int row = 2 * t + 8 * i;
      b[row][g] = LowerHalf(mine.b->word[i]), b[row + 1][g] = UpperHalf(mine.b->word[i]);
    }
  }
  for (int lane = 0; lane < kWarp; ++lane) {
    FragmentC& c = *static_cast<const ProductLane*>(lanes[lane])->c;
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
      for (const int k : {0, 8}) c.v[i] = EightProductsAndSum(c.v[i], &a[row][k], &b[k][column], 8);
    }
  }
}

inline void MultiplyAdd(FragmentC& c, const FragmentA& a, const FragmentB& b, const Where& where = Where::current()) {
  ProductLane mine = {&c, &a, &b};
  Executor::Current().Together(&mine, MultiplyAddTogether, where);
}

struct MatrixLane {
  Vector16 row;
  FourMatrices loaded;
};
inline uint32_t Element(const Lanes& lanes, int matrix, int row, int column) {
  const Vector16& values = static_cast<const MatrixLane*>(lanes[8 * matrix + row])->row;
  return values.word[column / 2] >> (16 * (column % 2)) & 0xFFFF;
}
template <bool kTransposed>
void LoadMatricesTogether(const Lanes& lanes) {
  for (int lane = 0; lane < kWarp; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; ++i) {
      const uint32_t low = kTransposed ? Element(lanes, i, 2 * t, g) : Element(lanes, i, g, 2 * t);
      const uint32_t high = kTransposed ? Element(lanes, i, 2 * t + 1, g) : Element(lanes, i, g, 2 * t + 1);
      static_cast<MatrixLane*>(lanes[lane])->loaded.word[i] = low | high << 16;
    }
  }
}

inline FourMatrices LoadMatrices(const Shared<Vector16>& row, const Where& where = Where::current()) {
  MatrixLane mine = {row[0], {}};
  Executor::Current().Together(&mine, LoadMatricesTogether<false>, where);
  return mine.loaded;
}
inline FourMatrices LoadMatricesTransposed(const Shared<Vector16>& row, const Where& where = Where::current()) {
  MatrixLane mine = {row[0], {}};
  Executor::Current().Together(&mine, LoadMatricesTogether<true>, where);
  return mine.loaded;
}

#endif

}  // namespace hadal::cuda
