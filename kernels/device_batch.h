// Where a device finds the values that change from one micro-batch to the next: tokens, attention's tiles, the position
// of dropout's random numbers, branch gains, the loss's scale.
//
// They are one block of bytes: filled on the host, copied at once, read by all launches of the micro-batch. Places in
// the block depend only on DeviceBatchShape. So launches recorded for one micro-batch also serve the next one of that
// shape, in the same block.
//
//   content ─ DeviceKernels::write_batch → host block ─ copy → device block ─ PlacesIn → arguments of kernels/<op>.h
//
// An operation that gets no place brings the values itself (device/launch_memory.h); tools and tests of one kernel do
// that. Decoding has places of its own (pipeline/decode/decode_blocks.h).
// Padding rows follow the sentences' rows (runtime/data/packed_batch.h). Their token is −1, and for attention they are
// sentences that nobody else sees. So their activations are finite whatever the memory held, and their gradients are 0.
// Thread safety: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>

#include "runtime/random.h"
#include "runtime/tensor.h"

namespace hadal {

namespace cuda {
struct AttentionTile;  // kernels/cuda/attention.h
}  // namespace cuda

// One side's tokens, and its rows grouped by token (kernels/cuda/embedding.h). Null: not given.
struct TokenPlaces {
  const int32_t* tokens = nullptr;        // [rows]
  const int32_t* positions = nullptr;     // [rows] in the sentence, from 0; −1: a padding row
  const int32_t* group_count = nullptr;   // one
  const int32_t* group_starts = nullptr;  // [groups + 1]
  const int32_t* group_tokens = nullptr;  // [groups]
  const int32_t* sorted_rows = nullptr;   // [rows with a token]
};

// The tiles of one attention, then tiles of 0 rows up to the capacity.
struct TilePlaces {
  const cuda::AttentionTile* queries = nullptr;  // [query_capacity]
  const cuda::AttentionTile* keys = nullptr;     // [key_capacity]
  int64_t query_capacity = 0, key_capacity = 0;
};

struct DeviceBatch {
  const RandomPosition* random = nullptr;
  const float* gradient_scale = nullptr;
  const float* branch_gains = nullptr;  // of the sublayers from first_sublayer on
  int32_t first_sublayer = 0;
  TokenPlaces source, target;
  const int32_t* targets = nullptr;  // [target rows]; −1: a padding row
  TilePlaces source_self, target_self, cross;
};

// What the places depend on.
struct DeviceBatchShape {
  int64_t source_rows = 0, target_rows = 0;    // with padding rows
  int64_t source_tiles = 0, target_tiles = 0;  // capacities
  int64_t branch_gains = 0;

  auto Fields() const { return std::tie(source_rows, target_rows, source_tiles, target_tiles, branch_gains); }
  bool operator<(const DeviceBatchShape& other) const { return Fields() < other.Fields(); }
};

struct BatchContent {
  RandomPosition random;
  float gradient_scale = 0;
  ConstVector branch_gains;  // [sublayers] from first_sublayer on
  int32_t first_sublayer = 0;
  ConstTokens source, target_input, target;  // [rows]
  ConstTokens source_offsets, target_offsets;
};

// The tile capacity is a quarter of the rows if that suffices (sentences of four tokens and more), else the number of
// rows, which always suffices. So few blocks of a launch have nothing to do, and there are few different shapes.
DeviceBatchShape ShapeOf(const BatchContent& content);
// The largest shape for up to this many rows.
DeviceBatchShape LargestShape(int64_t source_rows, int64_t target_rows, int64_t branch_gains);

int64_t BatchBytes(const DeviceBatchShape& shape);
// REQUIRES: `block` is on 16 bytes. Only its address is used; nothing is read or written there.
DeviceBatch PlacesIn(const DeviceBatchShape& shape, int32_t first_sublayer, const std::byte* block);

}  // namespace hadal
