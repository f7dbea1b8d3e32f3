// Rounds a micro-batch's rows up to one of a few sizes, for a device.
// Why: what a device launches for a micro-batch depends on its number of rows. With few sizes, one recorded graph
// serves many micro-batches (graph_cache.h), and a matrix product's plan serves many layers.
// A size is a multiple of an eighth of the capacity (rounded up to 8 rows), or of bucket_rows if that is more, and at
// most the capacity. Micro-batches are packed until one side (source or target) is nearly full: that side takes one of
// the last two sizes, the other any of eight, so some sixteen pairs of sizes occur. Padding costs at most an eighth of
// a side, a sixteenth on average. bucket_rows is 128 by default, because products of fewer rows do not fill a GPU. The
// size depends on the batch and the config alone, so it is the same in every layout. Padding rows (packed_batch.h) have
// zero gradients, so they change no sum.
#pragma once

#include <cstdint>

#include "layers/chunk_part.h"
#include "runtime/data/packed_batch.h"

namespace hadal {

// Returns `rows` rounded up to a size; 0 stays 0. `least`: bucket_rows. REQUIRES: rows ≤ capacity; least ≥ 1.
int64_t BucketRows(int64_t rows, int64_t capacity, int64_t least);

// Sets `to` to `batch`, with each side padded to a size. `least`: bucket_rows.
void PadToBuckets(const PackedBatch& batch, const ActivationCapacity& capacity, int64_t least, PackedBatch& to);

}  // namespace hadal
