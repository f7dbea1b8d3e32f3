// Unfold and fold on the device: the formulas of kernels/unfold.h.
//
//   unfold   u[r, 5c + k] = x[first(r) + k, c] for k in [begin(r), end(r)), else 0
//   fold     dx[first(r) + k, c] += du[r, 5c + k] for these k
//
// A row's taps (RowTaps) are read from device memory, so a captured graph serves every batch. Rows without taps are
// padding: zeros in u, nothing added to dx.
// X is the type of x, U that of u and du; dx is fp32. Unfold: <float, float>, <float, BFloat16>, <BFloat16, BFloat16>.
// Numerics: unfold rounds to U; fold adds a row of dx's terms in ascending order of r: the CPU's bits in fp32. No
// atomics: a block owns the two rows of dx at the centre of a row of du (taps 2 and 3). Asynchronous.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/device_view.h"

namespace hadal::cuda {

inline constexpr int kTaps = 5;

// Tap k of a row of u is row first + k of x, and inside its sentence for k in [begin, end).
struct RowTaps {
  int32_t first = 0, begin = 0, end = 0;
};
// Returns the taps of the sentences' rows of u, for stride 2 and offsets that belong to each other (kernels/unfold.h).
std::vector<RowTaps> TapsOfRows(const std::vector<int32_t>& x_offsets, const std::vector<int32_t>& u_offsets);

template <typename X, typename U>
struct UnfoldArgs {
  int64_t rows = 0, width = 1;        // R, C
  DevicePointer<const RowTaps> taps;  // [R]
  DeviceMatrix<const X> x;            // [rows of x, C]
  DeviceMatrix<U> u;                  // [R, 5C] (=)
};
template <typename X, typename U>
void Unfold(StreamHandle stream, const UnfoldArgs<X, U>& args);

template <typename U>
struct FoldArgs {
  int64_t first = 0, rows = 0, width = 1;  // du has rows [first, first + rows) of all
  int64_t all_rows = 0;
  DevicePointer<const RowTaps> taps;  // [all_rows]
  DeviceMatrix<const U> du;           // [rows, 5C]
  DeviceMatrix<float> dx;             // [rows of x, C] (+=)
};
template <typename U>
void Fold(StreamHandle stream, const FoldArgs<U>& args);

}  // namespace hadal::cuda
