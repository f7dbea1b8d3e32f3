// Work partition and scratch layout of CPU attention, shared by forward and backward.
//
// A unit of work is a sentence and a head of keys, with the heads of queries that share this head of keys. One thread
// computes a unit in its own scratch, one head of queries after another, in tiles of kAttentionTile queries.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/attention.h"
#include "runtime/tensor.h"

namespace hadal::cpu {

// The most queries of a tile: a multiple of every vector width and of kCausalStrip.
inline constexpr int64_t kAttentionTile = 32;
// Causal products are split into strips of this many keys or queries; strips wholly above the diagonal are skipped.
inline constexpr int64_t kCausalStrip = 8;

// A sentence and a head of queries.
struct AttentionPair {
  int64_t first_query, queries;  // rows of q, output
  int64_t first_key, keys;       // rows of k, v
  int32_t head;                  // of the queries
  int32_t key_head;              // head / group
};

// Calls body(pair) for each unit of thread `thread`, with the unit's first head. A thread's units are one contiguous
// range in (sentence, key head) order. All threads have about the same work (queries x keys). Every unit belongs to
// exactly one thread.
template <typename Body>
void ForOwnPairs(const AttentionShape& shape, int thread, int threads, Body&& body) {
  const int64_t sentences = shape.query_offsets.size - 1;
  const auto pair_of = [&](int64_t n) {
    return AttentionPair{.first_query = shape.query_offsets[n],
                         .queries = shape.query_offsets[n + 1] - shape.query_offsets[n],
                         .first_key = shape.key_offsets[n],
                         .keys = shape.key_offsets[n + 1] - shape.key_offsets[n],
                         .head = 0,
                         .key_head = 0};
  };
  const auto work_of = [&](const AttentionPair& pair) {
    const int64_t seen = std::min(pair.keys, 2 * int64_t{shape.reach} + 1);
    return pair.queries * seen + pair.queries + pair.keys + 1;  // the last terms: copies and calls
  };
  const int32_t key_heads = shape.heads / shape.group;
  int64_t total = 0;
  for (int64_t n = 0; n < sentences; ++n) total += key_heads * work_of(pair_of(n));
  const int64_t begin = 2 * total * thread / threads;
  const int64_t end = 2 * total * (thread + 1) / threads;
  int64_t middle = 0;  // twice the work before the middle of the pair
  for (int64_t n = 0; n < sentences; ++n) {
    AttentionPair pair = pair_of(n);
    const int64_t work = work_of(pair);
    for (; pair.key_head < key_heads; ++pair.key_head, pair.head += shape.group, middle += 2 * work) {
      if (middle + work >= begin && middle + work < end) body(pair);
    }
  }
}

// Calls body(pair) for each head of the unit whose first head is `first`'s.
template <typename Body>
void ForHeadsOfUnit(const AttentionShape& shape, const AttentionPair& first, Body&& body) {
  AttentionPair pair = first;
  for (; pair.head < first.head + shape.group; ++pair.head) body(pair);
}

// Offsets of one thread's scratch, in floats; each part starts on a 64-byte boundary. T = kAttentionTile, L = longest
// sentence, D = head width, W = D rounded up to 16.
struct AttentionScratchLayout {
  AttentionScratchLayout(int64_t max_length, int64_t head_width) {
    const int64_t width = (head_width + 15) / 16 * 16;
    const auto reserve = [this](int64_t floats) {
      const int64_t offset = total;
      total += floats;
      return offset;
    };
    queries_t = reserve(head_width * kAttentionTile);
    d_output_t = reserve(head_width * kAttentionTile);
    probabilities = reserve(max_length * kAttentionTile);
    dropped = reserve(max_length * kAttentionTile);
    d_scores = reserve(max_length * kAttentionTile);
    keys = reserve(max_length * width);
    queries = reserve(kAttentionTile * width);
    d_output = reserve(kAttentionTile * width);
    output = reserve(kAttentionTile * width);
    d_keys = reserve(max_length * width);
    d_values = reserve(max_length * width);
  }

  int64_t total = 0;
  int64_t queries_t;         // Qᵀ, scaled [D, T]
  int64_t d_output_t;        // dOᵀ [D, T]
  int64_t probabilities;     // scores, then probabilities, transposed [L, T]
  int64_t dropped;           // probabilities after dropout, transposed [L, T]
  int64_t d_scores;          // gradients of the probabilities, then of the scores, transposed [L, T]
  int64_t keys;              // backward: K, after rotary turning; forward: V [L, W]
  int64_t queries;           // Q of a tile, after rotary turning [T, W]
  int64_t d_output;          // dO of a tile [T, W]
  int64_t output;            // the output or dQ of a tile [T, W]
  int64_t d_keys, d_values;  // [L, W]; in forward d_keys holds K after rotary turning, if any
};

// Floats of one thread's scratch, with room to start on a 64-byte boundary, so that speed does not depend on the
// address.
inline int64_t ThreadScratchFloats(const AttentionScratchLayout& layout) { return layout.total + 16; }

// Returns where the scratch of `thread` begins in `scratch`. REQUIRES: ThreadScratchFloats floats for each thread.
inline float* ThreadScratch(const Vector& scratch, int thread, const AttentionScratchLayout& layout) {
  const auto address = reinterpret_cast<uintptr_t>(scratch.data + thread * ThreadScratchFloats(layout));
  return reinterpret_cast<float*>((address + 63) / 64 * 64);
}

// Returns the rows of the longest sentence on either side.
inline int64_t MaxLength(const AttentionShape& shape) {
  int64_t longest = 0;
  for (int64_t n = 0; n + 1 < shape.query_offsets.size; ++n) {
    longest = std::max<int64_t>(longest, shape.query_offsets[n + 1] - shape.query_offsets[n]);
    longest = std::max<int64_t>(longest, shape.key_offsets[n + 1] - shape.key_offsets[n]);
  }
  return longest;
}

}  // namespace hadal::cpu
