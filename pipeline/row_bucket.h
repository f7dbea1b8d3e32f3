// Rounds a micro-batch's rows up to one of a few sizes, for a device.
//
// What a device launches for a micro-batch is a function of its rows: with few sizes a recorded graph serves many
// micro-batches (graph_cache.h), and a product's plan many layers. A size is a multiple of an eighth of the capacity,
// at least of bucket_rows: micro-batches are packed until one side is nearly full, so that side is in one of the last
// eighths and the other in any, some sixteen pairs of sizes, and padding costs at most an eighth of a side, a sixteenth
// on average. Fewer than 128 rows do not fill a GPU's product. The size is a function of the batch and the config
// alone, so no layout changes a bit. Padding rows: packed_batch.h; every gradient of theirs is 0, and so they change no
// sum.
#pragma once

#include <cstdint>

#include "layers/sublayer_context.h"
#include "runtime/data/packed_batch.h"

namespace hadal {

// The rows that `rows` are rounded up to; 0 stays 0.  REQUIRES: rows ≤ capacity; least ≥ 1.
int64_t BucketRows(int64_t rows, int64_t capacity, int64_t least);

// `to` = `batch` with padding rows after the rows of both sides.
void PadToBuckets(const PackedBatch& batch, const ActivationCapacity& capacity, int64_t least, PackedBatch& to);

}  // namespace hadal
