// One matrix as another stores it: to = from, element by element.
//
// Why its own op: where a run stores activations in bf16, a stream that stays fp32 has readers that want bf16 (products), and gradients that
// several readers added up in fp32 go on in bf16. Weights are rounded so where they come from elsewhere than Adam.
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
