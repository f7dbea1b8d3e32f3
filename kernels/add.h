// sum += values, element by element: for the gradients of an embedding table that is used in several places.
// Numerics: fp32; elements are independent. REQUIRES: equal sizes; no overlap (aborts where it can be detected).
// Blocking on the CPU; allocates nothing. On a device it may run on another queue (Stream::Beside).
#pragma once

#include "runtime/tensor.h"

namespace hadal {

class Stream;

struct AddArgs {
  Vector sum;          // [n] (+=): added to
  ConstVector values;  // [n]
};
void Add(const Stream& stream, const AddArgs& args);

}  // namespace hadal
