// Multi-head scaled dot-product attention over packed sentences, without a score tensor in memory.
//
// For each sentence n and head h, with Q the rows of n in columns [h·D, h·D + D) of q, and K and V those of k and v:
//   P = softmax(Q·Kᵀ / sqrt(D) + mask)      output = dropout(P)·V
// mask: none, or causal (key position ≤ query position; queries and keys are then the same sentences), each within a
// sliding window (attention_reach.h). Tiles of keys outside all windows of a tile of queries are not read.
// Grouped heads (arXiv 2305.13245): query head h reads the keys and values of key head h / G (rounded down). Rotary
// positions: queries and keys are rotated (rotary.h) as they are read, d_q and d_k are rotated back as they are
// written, so rotation needs no pass over memory of its own.
// Sentences are short and heads narrow (32 tokens by 16 columns): a head's scores fit in a core's caches, and packed
// sentences need no padding. attention.md derives the backward pass.
// Source: Vaswani et al. 2017 eq. 1; backward recomputes P from the saved log-sum-exp (FlashAttention, arXiv
// 2205.14135).
// Shapes: Rq packed query rows, Rk packed key rows, H heads of width D, K = H / G heads of keys. offsets[n] ..
// offsets[n+1] are the rows of sentence n. q, k, v and their gradients may be column ranges of one fused matrix, with
// any stride.
// Storage: q, k, v, output and their gradients share one type, fp32 or on a device bf16; everything else is fp32.
// Numerics: fp32 (for bf16 see cuda/tensor_attention.h). On the CPU one thread computes a (sentence, key head)
// pair: its query heads, keys and queries in ascending order. No bit depends on the number of threads, other
// sentences, the place in the batch or alignment (a dropout mask does depend on the packed row). A NaN in a sentence
// propagates to its output and gradients. A sentence with queries and no keys has output 0, log-sum-exp -inf and no
// gradient; either length may be 0. Dropout: see random.h (the query row is the packed row).
// REQUIRES: matching shapes; offsets that ascend from 0 to the number of rows (with device_tiles, padding rows may
// follow); scratch of AttentionScratch floats (aborts otherwise, with both values); outputs that do not overlap
// inputs. Blocking on the CPU, asynchronous on a device; allocates nothing.
#pragma once

#include "kernels/attention_reach.h"
#include "kernels/device_batch.h"
#include "kernels/rotary.h"
#include "runtime/random.h"
#include "runtime/tensor.h"

namespace hadal {

class Stream;

struct AttentionShape {
  ConstTokens query_offsets;       // [sentences + 1], first 0
  ConstTokens key_offsets;         // [sentences + 1], first 0
  int32_t heads = 1;               // H
  int32_t group = 1;               // G, divides H
  bool causal = false;             // REQUIRES: equal query and key offsets
  int32_t reach = kWholeSentence;  // window, in tokens; REQUIRES: ≥ 0, and if not kWholeSentence, equal offsets
  Rotary rotary;                   // REQUIRES: a table row for each position, 2h ≤ D
  DeviceTiles device_tiles;        // on a device: the sentences' tiles in device memory; may be empty
};

struct AttentionForwardArgs {
  AttentionShape shape;
  ConstAnyMatrix q;     // [Rq, H·D]
  ConstAnyMatrix k, v;  // [Rk, K·D]
  Dropout dropout;      // on the probabilities
  AnyMatrix output;     // [Rq, H·D] (=): written
  Matrix log_sum_exp;   // [Rq, H]   (=) natural, of the scaled scores; for backward. A device fills it as [H, Rq]
  Vector scratch;       // AttentionScratch(...) floats; need not be initialised
};
void AttentionForward(const Stream& stream, const AttentionForwardArgs& args);

// Does not need the forward's output. FlashAttention computes Σ_d d_output·output from it; here that sum is computed
// from P.
struct AttentionBackwardArgs {
  AttentionShape shape;
  ConstAnyMatrix q, k, v;   // as in forward
  ConstMatrix log_sum_exp;  // [Rq, H]
  ConstAnyMatrix d_output;  // [Rq, H·D]
  Dropout dropout;          // as in forward
  AnyMatrix d_q;            // [Rq, H·D] (=)
  AnyMatrix d_k, d_v;       // [Rk, K·D] (=)
  Vector scratch;           // as in forward
};
void AttentionBackward(const Stream& stream, const AttentionBackwardArgs& args);

// Returns the floats of scratch for forward or backward of up to `query_rows` rows, with at most `max_length` rows per
// sentence on either side. On the CPU it depends on the threads and max_length, not on the batch; about
//   threads · (96·max_length + 3·max_length·D + 160·D)
// On a device it is 2·H per query row.
struct AttentionCapacity {
  int64_t query_rows = 0;
  int64_t max_length = 0;
  int64_t heads = 1, head_width = 1;
};
int64_t AttentionScratch(const Stream& stream, const AttentionCapacity& capacity);

}  // namespace hadal
