// Copies rows to given rows: y[index[i]] = x[i]. A decoding step writes its keys and values to the cache with it.
// With rotary positions (rotary.h) the first turned_columns of each row, the heads of the keys, are rotated for
// positions[i] before they are stored.
//
// Shapes: B rows of W columns into R rows. Storage: x and y share one type, fp32, or on a device bf16. Numerics:
// copies; rotations are computed in fp32.
// REQUIRES: 0 ≤ index[i] < R, positions within the table (aborts); x and y do not overlap. If several rows have the
// same index, the result may be any of them, or parts of several. Blocking on the CPU, asynchronous on a device;
// allocates nothing.
#pragma once

#include "kernels/rotary.h"
#include "runtime/tensor.h"

namespace hadal {

class Stream;

struct ScatterRowsArgs {
  ConstAnyMatrix x;                       // [B, W]
  ConstTokens index;                      // [B]
  const int32_t* device_index = nullptr;  // on a device: a copy of `index` in its memory; null: the call copies them
  AnyMatrix y;                            // [R, W] (=): written, in the rows of index
  Rotary rotary;
  int64_t turned_columns = 0, head_width = 0;  // with `rotary`: columns of x to rotate, a multiple of head_width
  ConstTokens positions;                       // [B] with `rotary`
  const int32_t* device_positions = nullptr;   // on a device: a copy of `positions` in its memory; null: as above
};
void ScatterRows(const Stream& stream, const ScatterRowsArgs& args);

}  // namespace hadal
