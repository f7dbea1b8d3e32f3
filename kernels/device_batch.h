// Where the values of a micro-batch that change lie on a device: tokens, attention's tiles, dropout's place, branch gains, the loss's scale.
//
// They are one block of bytes: filled on the host, copied at once, read by all launches of the micro-batch. Places within it are a function
// of DeviceBatchShape alone, so that a launch which is made for one micro-batch serves the next one of the same shape in the same block.
//
//   content ─ WriteBatch (device_kernels.h) → a block of the host ─ one copy → the device's ─ PlacesIn → arguments of kernels/<op>.h
//
// An operation that is given no place brings the values along itself (device/launch_memory.h): tools and tests of one kernel. Decoding has places of its own (pipeline/decode/decode_blocks.h).
// Padding rows stand behind the sentences' (runtime/data/packed_batch.h): their token is −1, attention has them as sentences that
// nobody else sees. So their activations are finite whatever memory held, and every gradient of theirs is 0.
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

// A side's tokens, and its rows grouped by token (kernels/cuda/embedding.h). Null: not given.
struct TokenPlaces {
  const int32_t* tokens = nullptr;        // [rows]
  const int32_t* positions = nullptr;     // [rows] in the sentence, from 0; −1: a padding row
  const int32_t* group_count = nullptr;   // one
  const int32_t* group_starts = nullptr;  // [groups + 1]
  const int32_t* group_tokens = nullptr;  // [groups]
  const int32_t* sorted_rows = nullptr;   // [rows with a token]
};

// The tiles of an attention. Those behind the last have 0 rows.
struct TilePlaces {
  const cuda::AttentionTile* queries = nullptr;  // [query_capacity]
  const cuda::AttentionTile* keys = nullptr;     // [key_capacity]
  int64_t query_capacity = 0, key_capacity = 0;
};

struct DeviceBatch {
  const RandomPosition* random = nullptr;
  const float* gradient_scale = nullptr;
  const float* branch_gains = nullptr;  // of sublayers ≥ first_sublayer
  int32_t first_sublayer = 0;
  TokenPlaces source, target;
  const int32_t* targets = nullptr;  // [target rows]; −1: a padding row
  TilePlaces source_self, target_self, cross;
};

// What all places are a function of.
struct DeviceBatchShape {
  int64_t source_rows = 0, target_rows = 0;    // padding rows counted
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

// A tile capacity is a quarter of the rows where that suffices (sentences of four tokens and more), else their number, which always
// does: a launch has few blocks with nothing to do, and shapes stay few.
DeviceBatchShape ShapeOf(const BatchContent& content);
// The largest shape of up to so many rows.
DeviceBatchShape LargestShape(int64_t source_rows, int64_t target_rows, int64_t branch_gains);

int64_t BatchBytes(const DeviceBatchShape& shape);
// REQUIRES: `block` stands on 16 bytes; only its address is used.
DeviceBatch PlacesIn(const DeviceBatchShape& shape, int32_t first_sublayer, const std::byte* block);

}  // namespace hadal
