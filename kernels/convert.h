// Copies a matrix to one whose element type may differ: to = from, element by element.
//
// A run that stores activations in bf16 may keep the residual stream in fp32: products then read it in bf16, and
// gradients that were summed in fp32 are passed on in bf16. On a device this operation also rounds the weights to bf16
// after initialisation and loading; later Adam writes the rounded copy.
// Numerics: rounding as in runtime/storage.h; fp32 to fp32 and bf16 to fp32 are exact. Elements are independent.
// REQUIRES: equal shapes; no overlap (aborts if the addresses are equal). Blocking only on the CPU; allocates nothing.
#pragma once

#include "runtime/tensor.h"

namespace hadal {

class Stream;

struct ConvertArgs {
  ConstAnyMatrix from;  // [R, W]
  AnyMatrix to;         // [R, W] (=): written
};
void Convert(const Stream& stream, const ConvertArgs& args);

}  // namespace hadal
