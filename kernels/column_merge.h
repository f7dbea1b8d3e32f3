// ColumnMerge: the second stage of a sum over a matrix's rows on a device. The first stage sums each column within each
// block of rows; a merge adds the sums of the blocks (`parts`):
//
//   sums[c] += Σ_part parts[part · stride + c]        part < count, c < width
// Numerics: the order of a merge's additions depends only on `count` (kernels/cuda/column_parts.h).
// Thread safety: plain values.
#pragma once

#include <cstdint>

namespace hadal {

struct ColumnMerge {
  const float* parts = nullptr;  // [count, width], `stride` floats from row to row
  int64_t count = 0, stride = 0, width = 0;
  float* sums = nullptr;  // [width] (+=): added to
};

}  // namespace hadal
