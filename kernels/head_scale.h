// Head scale: each attention head's output times a learned scalar, y[r, h·D + j] = g[h]·x[r, h·D + j].
//
// NormFormer (Shleifer et al. 2021) has it between the heads and the output product.
// Shapes: R packed rows, H heads of width D. (=): written; (+=): added to.
// Storage: x, y and their gradients share one type, fp32 or on a device bf16; gains and their gradients are fp32.
// Numerics: fp32. d_gain sums blocks of kHeadScaleRowBlock rows; blocks are merged in ascending order, so the number of
// threads does not change any bit.
// REQUIRES: matching shapes (aborts with both values otherwise). Blocking on the CPU, asynchronous on a device;
// allocates nothing.
#pragma once

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

inline constexpr int64_t kHeadScaleRowBlock = 32;

struct HeadScaleForwardArgs {
  ConstAnyMatrix x;  // [R, H·D]
  ConstVector gain;  // g [H]
  AnyMatrix y;       // [R, H·D] (=); may alias x
};
void HeadScaleForward(const Stream& stream, const HeadScaleForwardArgs& args);

//   dx = g·dy    d_gain[h] += Σ_rows Σ_j dy·x
struct HeadScaleBackwardArgs {
  ConstAnyMatrix dy, x;  // [R, H·D]
  ConstVector gain;      // [H]
  AnyMatrix dx;          // [R, H·D] (=); may alias dy
  Vector d_gain;         // [H] (+=)
  Vector partials;       // scratch, HeadScalePartials(R, H) floats
};
void HeadScaleBackward(const Stream& stream, const HeadScaleBackwardArgs& args);

constexpr int64_t HeadScalePartials(int64_t rows, int64_t heads) {
  return (rows + kHeadScaleRowBlock - 1) / kHeadScaleRowBlock * heads;
}

}  // namespace hadal
