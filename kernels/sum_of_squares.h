// SumOfSquares returns Σ x_i² of a flat range in double: one slice's part of a squared gradient norm.
//
// Norms decide clipping, so their bits must not depend on the layout of the run: the caller adds slices in (parameter,
// slice) order.
// Numerics: each x is widened to double, where its square is exact. There are eight sums; sum s_i adds elements i, i +
// 8, i + 16, … in ascending order. The result is ((s0+s1)+(s2+s3))+((s4+s5)+(s6+s7)), the same bits with every
// instruction set and alignment. A non-finite element makes the result non-finite (used by the step's finite check);
// finite floats never overflow it. An empty range gives 0.
// Thread-safe, blocking; allocates nothing.
#pragma once

#include <span>

#include "runtime/tensor.h"

namespace hadal {

class Stream;

double SumOfSquares(ConstVector x);

// SumsOfSquares computes SumOfSquares of many slices. On the CPU each slice is summed by one thread, with the same
// bits; all threads get about as many elements. A device adds in another order (cuda/sum_of_squares.h), and a thousand
// slices take two launches and one wait there. REQUIRES: on a device all slices are in one allocation.
struct SquaresSlice {
  ConstVector x;
  int64_t first = 0;  // total elements of the slices before it in the list
};
struct SumsOfSquaresArgs {
  std::span<const SquaresSlice> slices;
  std::span<double> sums;  // [slices] (=): written; in host memory
};
void SumsOfSquares(const Stream& stream, const SumsOfSquaresArgs& args);

}  // namespace hadal
