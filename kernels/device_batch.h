// The values that change between micro-batches, in device memory: tokens, frames of speech, attention's tiles, the
// position of dropout's random numbers, branch gains, the loss's scale.
//
// They form one block of bytes, filled on the host, copied at once, and read by all launches of the micro-batch. The
// offsets in it depend only on DeviceBatchShape, so launches recorded for one micro-batch also serve the next one of
// that shape in the same block.
//
//   content ─ DeviceKernels::write_batch → host block ─ copy → block ─ DeviceBatchIn → arguments of kernels/<op>.h
//
// An operation whose arguments have no device addresses copies the values itself (cuda_host/launch_memory.h): tools,
// and tests of one kernel, use that. Decoding has its own tables (pipeline/decode/decode_buffers.h).
// Padding rows follow the sentences' rows (runtime/data/packed_batch.h). Their token is −1, and for attention they
// follow the last sentence in tiles of their own, in which queries see no key and keys no query. Their activations
// are finite whatever the memory contained, and their gradients are 0. Thread safety: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>

#include "runtime/random.h"
#include "runtime/tensor.h"

namespace hadal {

namespace cuda {
struct AttentionTile;  // kernels/cuda/attention.h
struct RowTaps;        // kernels/cuda/unfold.h
}  // namespace cuda

// One side's tokens, and its rows grouped by token: group g has the token group_tokens[g] and the rows
// sorted_rows[group_starts[g], group_starts[g + 1]). Null: not given.
struct DeviceTokens {
  const int32_t* tokens = nullptr;        // [rows]
  const int32_t* positions = nullptr;     // [rows] in the sentence, from 0; −1: a padding row
  const int32_t* group_count = nullptr;   // [1] the number of groups
  const int32_t* group_starts = nullptr;  // [groups + 1]
  const int32_t* group_tokens = nullptr;  // [groups]
  const int32_t* sorted_rows = nullptr;   // [rows with a token]
};

// The tiles of one attention (each some rows of one sentence, kernels/cuda/attention.h), followed by tiles of 0 rows up
// to the capacity.
struct DeviceTiles {
  const cuda::AttentionTile* queries = nullptr;  // [query_capacity]
  const cuda::AttentionTile* keys = nullptr;     // [key_capacity]
  int64_t query_capacity = 0, key_capacity = 0;
};

// The taps (rows of the input) of each row of a convolution (cuda/unfold.h). Padding rows have none.
struct DeviceTaps {
  const cuda::RowTaps* taps = nullptr;  // [rows]
  int64_t rows = 0;                     // including padding rows
};

// Speech: frames and the taps of both convolutions. With frames, DeviceBatch::source.tokens[r] is r.
struct DeviceFrames {
  const float* frames = nullptr;  // [4 · source rows, width]; only the sentences' rows are filled
  DeviceTaps inner;               // of the first convolution, of 2 · source rows
  DeviceTaps outer;               // of the second, of source rows
};

struct DeviceBatch {
  const RandomPosition* random = nullptr;
  const float* gradient_scale = nullptr;
  const float* branch_gains = nullptr;  // of sublayers from first_sublayer on
  int32_t first_sublayer = 0;
  DeviceTokens source, target;
  const int32_t* targets = nullptr;  // [target rows]; −1: a padding row
  DeviceTiles source_self, target_self, cross;
  DeviceFrames speech;  // null: none
};

// The shape of a block, which determines the addresses in it.
struct DeviceBatchShape {
  int64_t source_rows = 0, target_rows = 0;    // including padding rows
  int64_t source_tiles = 0, target_tiles = 0;  // capacities
  int64_t branch_gains = 0;                    // their number
  int64_t frame_width = 0;                     // 0: no frames

  auto Fields() const {
    return std::tie(source_rows, target_rows, source_tiles, target_tiles, branch_gains, frame_width);
  }
  bool operator<(const DeviceBatchShape& other) const { return Fields() < other.Fields(); }
};

// The values of one micro-batch in host memory.
struct BatchContent {
  RandomPosition random;
  float gradient_scale = 0;
  ConstVector branch_gains;  // [sublayers], starting at first_sublayer
  int32_t first_sublayer = 0;
  ConstTokens source, target_input, target;  // [rows]
  ConstTokens source_offsets, target_offsets;
  ConstMatrix frames;         // speech, on the rank that reads them; else empty
  ConstTokens frame_offsets;  // [sentences + 1]
};

// Returns the shape of the block for `content`. The tile capacity is a quarter of the rows if that suffices (sentences
// of four tokens and more), else the number of rows, which always suffices. So there are few different shapes, and few
// thread blocks of a launch are idle.
DeviceBatchShape ShapeOf(const BatchContent& content);
// The largest shape for at most this many rows.
DeviceBatchShape LargestShape(int64_t source_rows, int64_t target_rows, int64_t branch_gains, int64_t frame_width = 0);

int64_t BatchBytes(const DeviceBatchShape& shape);
// Returns the addresses in a block. REQUIRES: `block` is 16-byte aligned. Reads and writes nothing there.
DeviceBatch DeviceBatchIn(const DeviceBatchShape& shape, int32_t first_sublayer, const std::byte* block);

}  // namespace hadal
