// Weighted sum of matrices by learned scalars: y = Σ_{k<K} w_k·x_k.
//
// Why its own op: a layer of DLCL (Wang et al. 2019) reads such a sum of the outputs of all layers in front of it.
// Storage: on the CPU fp32; on a device x is fp32 or bf16, y as x is or bf16, dy as x; dx, which several readers add to, is fp32.
// Shapes: R packed rows, W width; the K matrices lie on top of each other, x_k in rows [k·R, (k + 1)·R) of x.
// Numerics: fp32. Terms are added in ascending k, from w_0·x_0. The sums of backward add a row's columns as cpu/columns-inl.h does,
// the rows of a block of kWeightedSumRowBlock and then the blocks in ascending order, both in double: no thread count changes a bit.
// Memory: every x_k is read once forward, and read once and its gradient read and written once backward; y stays in the cache.
// REQUIRES: matching shapes (aborts with both values otherwise). Blocking; allocates nothing.
#pragma once

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

inline constexpr int64_t kWeightedSumRowBlock = 32;

struct WeightedSumForwardArgs {
  ConstAnyMatrix x;     // [K·R, W]
  ConstVector weights;  // w [K]
  AnyMatrix y;          // [R, W] (=); may not lie over x
};
void WeightedSumForward(const Stream& stream, const WeightedSumForwardArgs& args);

//   dx_k += w_k·dy    d_w_k += Σ dy·x_k
struct WeightedSumBackwardArgs {
  ConstAnyMatrix dy;    // [R, W]
  ConstAnyMatrix x;     // [K·R, W] of the forward
  ConstVector weights;  // w [K]
  Matrix dx;            // [K·R, W] (+=); may not lie over dy
  Vector d_weights;     // [K] (+=)
  Vector partials;      // scratch, WeightedSumPartials(R, K) floats
};
void WeightedSumBackward(const Stream& stream, const WeightedSumBackwardArgs& args);

constexpr int64_t WeightedSumPartials(int64_t rows, int64_t terms) {
  return terms * ((rows + kWeightedSumRowBlock - 1) / kWeightedSumRowBlock);
}

}  // namespace hadal
