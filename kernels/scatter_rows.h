// Rows that go to places of their own: y[index[i]] = x[i]. How a step of decoding puts its keys and values into the cache.
//
// Shapes: B rows of W columns into R rows. Storage: x and y alike, fp32, or on a device bf16. Numerics: copies.
// REQUIRES: 0 ≤ index[i] < R (aborts); x and y do not overlap. Of rows that go to one place any, or parts of several, may be what is found there.
// Blocking on a CPU; allocates nothing.
#pragma once

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

struct ScatterRowsArgs {
  ConstAnyMatrix x;                      // [B, W]
  ConstTokens index;                     // [B]
  const int32_t* index_place = nullptr;  // where a device finds it; null: the launch brings it
  AnyMatrix y;                           // [R, W] (=) in the rows named
};
void ScatterRows(const Stream& stream, const ScatterRowsArgs& args);

}  // namespace hadal
