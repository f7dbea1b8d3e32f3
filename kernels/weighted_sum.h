// Weighted sum of matrices by learned scalars: y = Σ_{k<K} w_k·x_k.
//
// A layer of DLCL (Wang et al. 2019) reads such a sum of the outputs of all layers before it.
// Storage: on the CPU fp32. On a device x is fp32 or bf16, y has x's type or bf16, dy has x's type; dx is fp32, because
// several layers add to it.
// Shapes: R packed rows, W width; the K matrices are stacked, x_k in rows [k·R, (k + 1)·R) of x.
// Numerics: fp32. Terms are added in ascending k, starting with w_0·x_0. For d_w_k the CPU adds the columns of a row in
// fp32 lanes, which are combined in a fixed order. It adds the rows of a block of kWeightedSumRowBlock in double,
// ascending, and rounds the sum to fp32; then it adds the blocks' sums in double, ascending. The number of threads does
// not change any bit. kernels/cuda/operations.h has the device's order.
// Memory: forward reads every x_k once. Backward reads every x_k once, and reads and writes its gradient once. y stays
// in the cache.
// REQUIRES: matching shapes (aborts with both values otherwise). Blocking on the CPU, asynchronous on a device;
// allocates nothing.
#pragma once

#include "runtime/tensor.h"

namespace hadal {

class Stream;

inline constexpr int64_t kWeightedSumRowBlock = 32;

struct WeightedSumForwardArgs {
  ConstAnyMatrix x;     // [K·R, W]
  ConstVector weights;  // w [K]
  AnyMatrix y;          // [R, W] (=): written; may not alias x
};
void WeightedSumForward(const Stream& stream, const WeightedSumForwardArgs& args);

//   dx_k += w_k·dy    d_w_k += Σ dy·x_k
struct WeightedSumBackwardArgs {
  ConstAnyMatrix dy;    // [R, W]
  ConstAnyMatrix x;     // [K·R, W] of the forward
  ConstVector weights;  // w [K]
  Matrix dx;            // [K·R, W] (+=): added to; may not alias dy
  Vector d_weights;     // [K] (+=)
  Vector partials;      // scratch, WeightedSumPartials(R, K) floats
};
void WeightedSumBackward(const Stream& stream, const WeightedSumBackwardArgs& args);

// Returns the floats of WeightedSumBackwardArgs::partials for R = `rows` and K = `terms`.
constexpr int64_t WeightedSumPartials(int64_t rows, int64_t terms) {
  return terms * ((rows + kWeightedSumRowBlock - 1) / kWeightedSumRowBlock);
}

}  // namespace hadal
