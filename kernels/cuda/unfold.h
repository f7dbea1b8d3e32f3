// Unfold and fold on the device: kernels/unfold.h.
//
//   unfold   u[r, 5c + k] = x[first(r) + k, c] for k in [begin(r), end(r)), else 0
//   fold     dx[first(r) + k, c] += du[r, 5c + k] for these k
//
// A row's taps (RowTaps) are read from device memory, so a captured graph serves every batch. Rows without taps are
// padding: zeros in u, nothing added to dx. x and u are <float, float>, <float, BFloat16> or <BFloat16, BFloat16>.
// Numerics: unfold rounds to u's type; fold adds the terms of a row of dx in ascending order of r; in fp32 the bits are
// the CPU's. No atomics: a block owns the two rows of dx at the centre of a row of du (taps 2 and 3).
// REQUIRES: args.device_taps. Asynchronous.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/device_view.h"
#include "kernels/unfold.h"

namespace hadal::cuda {

// Tap k of a row of u is row first + k of x, and inside its sentence for k in [begin, end).
struct RowTaps {
  int32_t first = 0, begin = 0, end = 0;
};
// Returns the taps of the sentences' rows of u, for stride 2 and offsets that belong to each other (kernels/unfold.h).
std::vector<RowTaps> TapsOfRows(const std::vector<int32_t>& x_offsets, const std::vector<int32_t>& u_offsets);

void Unfold(StreamHandle stream, const UnfoldArgs& args);
void Fold(StreamHandle stream, const FoldArgs& args);

}  // namespace hadal::cuda
