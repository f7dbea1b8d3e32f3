// Unfold and fold on the device: kernels/unfold.h.
//
//   unfold   u[r, 5c + k] = x[first(r) + k, c] for k in [begin(r), end(r)), else 0
//   fold     dx[first(r) + k, c] += du[r, 5c + k] for these k
//
// A row's taps (RowTaps) are read from device memory, so a captured graph serves every batch. Rows without taps are
// padding: zeros in u, nothing added to dx. The types of x and u are fp32 and fp32, fp32 and bf16, or bf16 and bf16.
// Numerics: unfold rounds to u's type; fold adds the terms of a row of dx in ascending order of r; in fp32 the bits are
// the CPU's. No atomics: a block sums all terms of two rows of dx, those at taps 2 and 3 (of 0 to 4) of one row of du.
// REQUIRES: args.device_taps is set. Asynchronous.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/device_view.h"
#include "kernels/unfold.h"

namespace hadal::cuda {

// Tap k of a row of u reads row first + k of x; this row is inside the sentence for k in [begin, end).
struct RowTaps {
  int32_t first = 0, begin = 0, end = 0;
};
// Returns the taps of all sentences' rows of u. REQUIRES: the offsets fit each other as kernels/unfold.h says.
std::vector<RowTaps> TapsOfRows(const std::vector<int32_t>& x_offsets, const std::vector<int32_t>& u_offsets);

void Unfold(StreamHandle stream, const UnfoldArgs& args);
void Fold(StreamHandle stream, const FoldArgs& args);

}  // namespace hadal::cuda
