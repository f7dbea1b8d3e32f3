// Shift and scale by learned scalars: y = g·(x − b), one b and one g for all of x.
//
// R-Fixup (Zhang, Dauphin and Ma 2019) has such scalars between its products instead of biases and norms.
// Shapes: R packed rows, W width. (=): written; (+=): added to. Storage: x and dx share one type, y and dy another. On
// the CPU both are fp32; on a device x is fp32 or bf16, and y has x's type or bf16.
// Numerics: fp32. Backward's two sums add the columns of a row in fp32 lanes, combined in a fixed order; then, in
// double and ascending order, the rows of a block of kShiftScaleRowBlock, rounded to fp32, and then the blocks. The
// number of threads does not change any bit.
// REQUIRES: matching shapes (aborts with both values otherwise). Blocking on the CPU, asynchronous on a device;
// allocates nothing.
#pragma once

#include "runtime/tensor.h"

namespace hadal {

class Stream;

inline constexpr int64_t kShiftScaleRowBlock = 32;

struct ShiftScaleForwardArgs {
  ConstAnyMatrix x;   // [R, W]
  ConstVector shift;  // b [1]
  ConstVector scale;  // g [1], or empty: 1
  AnyMatrix y;        // [R, W] (=); may alias x if they share a type
};
void ShiftScaleForward(const Stream& stream, const ShiftScaleForwardArgs& args);

//   dx (+)= g·dy    d_b −= Σ g·dy    d_g += Σ dy·(x − b)
struct ShiftScaleBackwardArgs {
  ConstAnyMatrix dy;         // [R, W]
  ConstAnyMatrix x;          // [R, W] x of the forward; read with a scale, else may be empty
  ConstVector shift, scale;  // as in the forward
  bool accumulate = false;   // dx += instead of dx =
  AnyMatrix dx;              // [R, W]; may alias dy if they share a type and accumulate is false
  Vector d_shift;            // [1] (+=)
  Vector d_scale;            // [1] (+=), with scale
  Vector partials;           // scratch, ShiftScalePartials(R) floats
};
void ShiftScaleBackward(const Stream& stream, const ShiftScaleBackwardArgs& args);

constexpr int64_t ShiftScalePartials(int64_t rows) {
  return 2 * ((rows + kShiftScaleRowBlock - 1) / kShiftScaleRowBlock);
}

}  // namespace hadal
