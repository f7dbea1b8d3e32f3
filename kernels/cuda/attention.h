// Attention over packed sentences on the device: the formulas of kernels/attention.h; scores never reach memory.
//
// A block computes one head and one tile of queries (for d_k and d_v: of keys) of one sentence. It loops over the other
// side 32 rows at a time with an online softmax. The host makes the list of tiles once per batch (AttentionTiles);
// blocks read it from device memory, so a captured graph serves every batch. The list's capacity allows for the
// shortest sentences; batches of real text fill a small part of it. The grid is therefore limited to most_blocks, and
// block x computes tiles x, x + (blocks of a head), … up to the end of the list.
// Backward: first d_q, which also writes two numbers per query and head to `row_terms`, then d_k and d_v. Both
// recompute P from the forward's log-sum-exp. Rows 2h and 2h + 1 of row_terms have, for head h, r_i (the first key's
// dA) and Σ_j P_ij (dP_ij − r_i) / Σ_j P_ij of kernels/attention.md, which keep the gradient accurate if a sentence's
// keys are alike. Values per query and head are stored [H, Rq], so that those of a block, which has one head, are
// contiguous.
// Numerics: fp32 in shared memory and registers for every T. Within a thread keys and queries are in ascending order;
// no atomics. Deterministic, and independent of other sentences. Exponentials have an error of one or two ulp for
// float, and are ex2.approx for BFloat16. Dropout masks are those of random.h.
// Tensor cores: BFloat16 with heads of 32, 64 or 128 columns (rounding: tensor_attention.h). Everything else is plain
// fp32 arithmetic, also heads of which rotary positions turn only some columns. The choice depends only on the type,
// the head's width and how many columns turn. Windows: a block skips rows of the other side, 32 at a time, that none
// of its rows sees. Rotary positions: a block turns queries and keys after loading them (keys again for each tile of
// queries, which a cache serves) and turns gradients back in registers or shared memory, so no turned copy is in
// device memory.
// REQUIRES: 1 ≤ head width ≤ 128; sentences of at most 65,536 tokens if dropout is active; causal: equal offsets.
// Asynchronous.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/attention_reach.h"
#include "kernels/cuda/device_view.h"
#include "kernels/cuda/dropout.h"
#include "kernels/cuda/rotary.h"

namespace hadal::cuda {

// Rows [first, first + rows) of one side, and the rows of their whole sentence on both sides. rows = 0: no tile.
struct AttentionTile {
  int32_t first = 0, rows = 0;
  int32_t query_begin = 0, query_end = 0, key_begin = 0, key_end = 0;
};

inline constexpr int64_t kWidestHead = 128;  // columns

inline constexpr int32_t kAttentionTileRows = 32;  // the most rows of a tile

// The tiles of a batch's queries, and of its keys, in ascending order. Each list has at most
//   rows / kAttentionTileRows + sentences
// tiles.
struct AttentionTiles {
  std::vector<AttentionTile> of_queries, of_keys;
};
AttentionTiles CutIntoTiles(const std::vector<int32_t>& query_offsets, const std::vector<int32_t>& key_offsets);

struct AttentionShape {
  int32_t heads = 1;       // H
  int32_t head_width = 1;  // D
  bool causal = false;
  // The most blocks of a launch, all heads together; does not change any bit. The default is about twice what a GPU of
  // 132 multiprocessors holds at once, enough for one block per tile of 10,000 tokens of text (eight heads).
  int32_t most_blocks = 4096;
  int32_t group = 1;  // heads of queries that share a head of keys
  DeviceRotary rotary;
  int32_t reach = kWholeSentence;  // of the window (attention_reach.h)

  int32_t key_heads() const { return heads / group; }  // K
};

template <typename T>
struct AttentionForwardArgs {
  AttentionShape shape;
  DevicePointer<const AttentionTile> query_tiles;  // [query_tile_capacity]
  int64_t query_tile_capacity = 0;
  DeviceMatrix<const T> q, k, v;  // [Rq, H·D], [Rk, K·D]
  DeviceDropout dropout;
  DeviceMatrix<T> output;           // [Rq, H·D] (=)
  DeviceMatrix<float> log_sum_exp;  // [H, Rq] (=)
};
template <typename T>
void AttentionForward(StreamHandle stream, const AttentionForwardArgs<T>& args);

template <typename T>
struct AttentionBackwardArgs {
  AttentionShape shape;
  DevicePointer<const AttentionTile> query_tiles, key_tiles;  // [capacity of each]
  int64_t query_tile_capacity = 0, key_tile_capacity = 0;
  DeviceMatrix<const T> q, k, v;          // [Rq, H·D], [Rk, K·D]
  DeviceMatrix<const float> log_sum_exp;  // [H, Rq]
  DeviceMatrix<const T> d_output;         // [Rq, H·D]
  DeviceDropout dropout;
  DeviceMatrix<T> d_q;            // [Rq, H·D] (=)
  DeviceMatrix<T> d_k, d_v;       // [Rk, K·D] (=)
  DeviceMatrix<float> row_terms;  // scratch [2·H, Rq]
};
template <typename T>
void AttentionBackward(StreamHandle stream, const AttentionBackwardArgs<T>& args);

}  // namespace hadal::cuda
