// Token embedding with positions: x = dropout(multiplier · E[token] + PE[position]), and its gradient. PE is fixed,
// learned, or absent.
//
// The fixed one is fairseq's: [sin(pos·w) | cos(pos·w)], w_i = 10000^(-i/(W/2 - 1)), the first token of a sentence at
// position 2 (padding index 1 + 1); for odd W the last column is 0. multiplier = sqrt(d_model).
// Shapes: R packed token rows, V vocabulary rows, W = d_model. (=): written; (+=): added to.
// Storage: the table, x and dx are fp32, or on a device bf16; positions, d_table and d_positions are fp32.
// Numerics: fp32. Backward adds rows in ascending order into the tables' rows (threads split columns); no atomics.
// REQUIRES: 0 ≤ token < V, position < positions.rows (aborts otherwise). Blocking on the CPU, asynchronous on a
// device; allocates nothing.
#pragma once

#include "kernels/device_batch.h"
#include "runtime/random.h"
#include "runtime/tensor.h"

namespace hadal {

class Stream;

// Fills table [P, W]: row p is the encoding of the p-th token of a sentence (p from 0; fairseq's position p + 2).
void FillSinusoidalPositions(Matrix table);

struct EmbeddingForwardArgs {
  ConstTokens tokens;         // [R]
  ConstTokens offsets;        // [sentences + 1]: row r of sentence n has position r - offsets[n]
  ConstTokens row_positions;  // [R] the rows' positions: for a decoding step, `offsets` is not read; empty otherwise
  ConstAnyMatrix table;       // E [V, W]
  ConstMatrix positions;      // PE [P, W]; may be empty: x has no positions
  float multiplier = 1.0f;
  Dropout dropout;             // element = row·W + column
  DeviceTokens device_tokens;  // on a device: tokens and positions there; null: the host's values are copied
  AnyMatrix x;                 // [R, W] (=)
};
void EmbeddingForward(const Stream& stream, const EmbeddingForwardArgs& args);

struct EmbeddingBackwardArgs {
  ConstTokens tokens;  // [R]
  ConstAnyMatrix dx;   // [R, W]
  float multiplier = 1.0f;
  Dropout dropout;
  DeviceTokens device_tokens;  // on a device: the rows grouped by token; null: they are grouped and copied
  Matrix d_table;              // [V, W] (+=)
  Matrix d_positions;          // [P, W] (+=): learned positions; may be empty
  ConstTokens offsets;         // [sentences + 1] with d_positions
};
void EmbeddingBackward(const Stream& stream, const EmbeddingBackwardArgs& args);

}  // namespace hadal
