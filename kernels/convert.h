// Copies a matrix into one of another type: to = from, element by element.
//
// Why its own op: a run that stores activations in bf16 may keep the residual stream in fp32. Products read the
// residual stream in bf16, and gradients that were added up in fp32 are passed on in bf16. It also rounds weights that
// did not come from Adam.
// Numerics: rounded as runtime/storage.h says; fp32 to fp32 and bf16 to fp32 are exact. Elements are independent.
// REQUIRES: equal shapes; no overlap (aborts where it can see it). Blocking on the CPU; allocates nothing.
#pragma once

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

struct ConvertArgs {
  ConstAnyMatrix from;  // [R, W]
  AnyMatrix to;         // [R, W] (=)
};
void Convert(const Stream& stream, const ConvertArgs& args);

}  // namespace hadal
