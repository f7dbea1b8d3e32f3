// Σ x_i² of one slice on the CPU, in double, in the order that kernels/sum_of_squares.h states.
#pragma once

#include "runtime/tensor.h"

namespace hadal::cpu {

double SumOfSquares(ConstVector x);

}  // namespace hadal::cpu
