// Rows that go to places of their own: y[index[i]] = x[i]. How a step of decoding puts its keys and values into the cache.
//
// Shapes: B rows of W columns into R rows. Numerics: copies.
// REQUIRES: 0 ≤ index[i] < R, no two alike (aborts where out of range); x and y do not overlap. Blocking on a CPU; allocates nothing.
#pragma once

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

struct ScatterRowsArgs {
  ConstMatrix x;      // [B, W]
  ConstTokens index;  // [B]
  Matrix y;           // [R, W] (=) in the rows named
};
void ScatterRows(const Stream& stream, const ScatterRowsArgs& args);

}  // namespace hadal
