#include "kernels/sum_of_squares.h"

#include "kernels/cpu/sum_of_squares.h"
#include "runtime/check.h"

namespace hadal {

double SumOfSquares(ConstVector x) {
  HADAL_CHECK_GE(x.size, 0);
  return cpu::SumOfSquares(x);
}

}  // namespace hadal
