// Copies rows to given rows: y[index[i]] = x[i]. A decoding step writes its keys and values to the cache with it.
//
// Shapes: B rows of W columns into R rows. Storage: x and y share one type, fp32, or on a device bf16. Numerics:
// copies.
// REQUIRES: 0 ≤ index[i] < R (aborts); x and y do not overlap. If several rows have the same index, the result may be
// any of them, or parts of several. Blocking on the CPU, asynchronous on a device; allocates nothing.
#pragma once

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

struct ScatterRowsArgs {
  ConstAnyMatrix x;                       // [B, W]
  ConstTokens index;                      // [B]
  const int32_t* device_index = nullptr;  // on a device: its address there; null: the host's values are copied
  AnyMatrix y;                            // [R, W] (=): written, in the rows of index
};
void ScatterRows(const Stream& stream, const ScatterRowsArgs& args);

}  // namespace hadal
