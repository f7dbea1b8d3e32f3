// Rounds a micro-batch's rows up to one of a few sizes, for a device.
// Why: what a device launches for a micro-batch depends on its number of rows. With few sizes, one recorded graph
// serves many micro-batches (graph_cache.h), and a matrix product's plan serves many layers.
// Sizes are the multiples of a unit below the capacity, and the capacity. The unit is an eighth of the capacity,
// rounded up to a multiple of 8 rows, but at least bucket_rows; so there are at most eight sizes. A micro-batch is
// packed until one side (source or target) is nearly full. That side usually takes one of the two largest sizes, and
// the other side any: 16 pairs of sizes if it is always the same side, at most 28 if either. Padding adds less than a
// unit to a side, about half a unit on average. bucket_rows is 128 by default, because products of fewer rows do not
// fill a GPU. The size depends on the batch and the config alone, so it is the same in every layout. Padding rows
// (packed_batch.h) have zero gradients, so they change no sum.
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
