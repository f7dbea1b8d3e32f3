// Σ x_i² of a flat range in double: the piece of a gradient norm that one slice contributes.
//
// Why its own kernel: norms decide clipping, so their bits must not depend on the layout of the run. A slice is summed
// here, slices are added by the caller in (parameter, slice) order. Numerics: each x is widened to double, where its
// square is exact; eight sums, sum i over the elements i, i + 8, i + 16, … in ascending order, combined as
// ((s0+s1)+(s2+s3))+((s4+s5)+(s6+s7)). A function of the values alone: every instruction set and alignment gives the
// same bits. A non-finite element makes the result non-finite (the finite check of a step rides on this); finite floats
// never overflow it. An empty range gives 0. Serial, thread-safe, blocking; allocates nothing.
#pragma once

#include "runtime/tensor.h"

namespace hadal {

double SumOfSquares(ConstVector x);

}  // namespace hadal
