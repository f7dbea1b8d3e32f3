// Σ x_i² of a flat range in double: the piece of a gradient norm that one slice contributes.
//
// Why its own kernel: norms decide clipping, so their bits must not depend on the layout of the run. This function sums
// one slice; the caller adds slices in (parameter, slice) order.
// Numerics: each x is widened to double, where its square is exact. There are eight sums; sum i adds the elements i,
// i + 8, i + 16, … in ascending order. The result is ((s0+s1)+(s2+s3))+((s4+s5)+(s6+s7)). It depends on the values
// alone: every instruction set and alignment gives the same bits. A non-finite element makes the result non-finite (a
// step's finite check uses that); finite floats never overflow it. An empty range gives 0.
// Thread-safe, blocking; allocates nothing.
#pragma once

#include <span>

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

double SumOfSquares(ConstVector x);

// The same for each of many slices. The stream's threads share the elements evenly. One thread sums a slice, so its
// bits are those of SumOfSquares. A device adds in another order (cuda/sum_of_squares.h), and there a thousand slices
// take two launches and one wait, wherever they lie. REQUIRES: on a device all slices are of one allocation.
struct SquaresSlice {
  ConstVector x;
  int64_t first = 0;  // elements in the slices before it
};
struct SumsOfSquaresArgs {
  std::span<const SquaresSlice> slices;
  std::span<double> sums;  // [slices] (=), in host memory
};
void SumsOfSquares(const Stream& stream, const SumsOfSquaresArgs& args);

}  // namespace hadal
