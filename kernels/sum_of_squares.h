// Σ x_i² of a flat range in double: the piece of a gradient norm that one slice contributes.
//
// Numerics: each x is widened to double; eight lane sums, combined in a fixed order: a function of the range alone.
// A non-finite element makes the result non-finite (the finite check of a step rides on this). Serial, thread-safe.
#pragma once

#include "runtime/tensor.h"

namespace hadal {

double SumOfSquares(ConstVector x);

}  // namespace hadal
