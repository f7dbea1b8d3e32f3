// Rounds a micro-batch's rows up to one of a few sizes, for a device.
//
// Why: what a device launches for a micro-batch depends on its rows. With few sizes, one recorded graph serves many
// micro-batches (graph_cache.h) and one product's plan many layers.
// A size is a multiple of an eighth of the capacity (rounded up to 8 rows), or of bucket_rows if that is more, and at
// most the capacity. Micro-batches are packed until one side is nearly full; so that side falls into one of the last
// eighths and the other into any, which gives some sixteen pairs of sizes. Padding costs at most an eighth of a side, a
// sixteenth on average. Fewer than 128 rows do not fill a GPU's product. The size depends on the batch and the config
// alone, so no layout changes a bit. Padding rows (packed_batch.h) have zero gradients, so they change no sum.
#pragma once

#include <cstdint>

#include "layers/chunk_part.h"
#include "runtime/data/packed_batch.h"

namespace hadal {

// The rows that `rows` are rounded up to; 0 stays 0.  REQUIRES: rows ≤ capacity; least ≥ 1.
int64_t BucketRows(int64_t rows, int64_t capacity, int64_t least);

// Sets `to` to `batch` with padding rows after the rows of each side.
void PadToBuckets(const PackedBatch& batch, const ActivationCapacity& capacity, int64_t least, PackedBatch& to);

}  // namespace hadal
