// sum += values, element by element: how the uses of a tied table meet.
//
// Numerics: fp32; elements are independent. REQUIRES: equal sizes; ranges that do not overlap (aborts otherwise where it can see it).
// Blocking on the CPU; allocates nothing. May be launched beside a device's main order (Stream::Beside).
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
