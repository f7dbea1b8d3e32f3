// CPU backend of kernels/sum_of_squares.h.
#pragma once

#include "runtime/tensor.h"

namespace hadal::cpu {

double SumOfSquares(ConstVector x);

}  // namespace hadal::cpu
