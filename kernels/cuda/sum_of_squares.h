// Σ x_i² of each of many slices, in double: the device's form of kernels/sum_of_squares.h.
//
// The caller adds slices in (parameter, slice) order, so that sums do not depend on the layout of the run.
// Numerics: x is widened to double, where its square is exact. A slice is divided into chunks of kSquaresChunk
// elements. Thread t of a chunk adds elements t, t + 256, …, then a warp is added as a butterfly, then warps, then
// chunks, in ascending order. A sum depends only on the values. (This is not the CPU's order: the last bits differ
// between kinds of device.) A non-finite element makes its slice's sum non-finite, which the step's finite check uses.
// An empty slice gives 0. Asynchronous.
#pragma once

#include "kernels/cuda/device_view.h"

namespace hadal::cuda {

inline constexpr int64_t kSquaresChunk = 16384;

struct SquaresRange {
  int64_t begin = 0, end = 0;  // elements relative to x
};

struct SumOfSquaresArgs {
  DevicePointer<const float> x;
  int64_t slices = 0;
  DevicePointer<const SquaresRange> ranges;  // [slices] in any order
  int64_t max_slice_size = 0;                // the size of the longest slice
  DevicePointer<double> partials;            // scratch, SumOfSquaresPartials(slices, max_slice_size) doubles
  DevicePointer<double> sums;                // [slices] (=)
};
void SumOfSquares(StreamHandle stream, const SumOfSquaresArgs& args);

// REQUIRES: slices ≤ 65,535.
constexpr int64_t SumOfSquaresPartials(int64_t slices, int64_t max_slice_size) {
  return slices * ((max_slice_size + kSquaresChunk - 1) / kSquaresChunk);
}

}  // namespace hadal::cuda
