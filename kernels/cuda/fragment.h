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
// On the emulator the lanes of a warp synchronise and the same is computed from the same registers, so tests check
// indices.
// Numerics: products of BFloat16 are exact in fp32. The order and rounding of a tensor core's sum of sixteen products
// is not documented: bits are equal on one kind of device, not across kinds. The emulator rounds as measured by Fasi et
// al. ("Numerical behavior of NVIDIA tensor cores", PeerJ CS 2021), without guard bits: it adds eight products and the
// sum at once, truncates each below 2^-23 of the largest, and truncates the result to fp32.
// REQUIRES: all lanes of the warp make the same call. sm_80 or later.
#pragma once

#include <cstdint>

#include "kernels/cuda/eight.h"
#include "kernels/cuda/thread_layer.h"

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

#endif

}  // namespace hadal::cuda

#if !defined(__CUDACC__)
#include "emulated_fragment.h"  // of tests/support, which is in the include path of the kernels' C++ build
#endif
