// sum += values, element by element. Adds up the gradients of a tied table's uses.
//
// Numerics: fp32; elements are independent. REQUIRES: equal sizes; ranges that do not overlap (aborts otherwise where
// it can see it). Blocking on the CPU; allocates nothing. On a device it may run beside the main order
// (Stream::Beside).
#pragma once

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

struct AddArgs {
  Vector sum;          // [n] (+=)
  ConstVector values;  // [n]
};
void Add(const Stream& stream, const AddArgs& args);

}  // namespace hadal
