// The K largest logits of each row, largest first, and the logit of one given column, for beam search.
//
//   tokens[i, 0 … K) = the columns of the K largest z[i, v], in descending order; ties: lower column first
//   values[i, k] = z[i, tokens[i, k]],  also_values[i] = z[i, also],  best[i] = tokens[i, 0], or 0 if that is -1
// One read of the row suffices. A beam of 4 needs about 10 of 8,000 logits, so most vectors cost only one comparison.
// Shapes: R rows, V vocabulary. (=): written.
// Numerics: comparisons only; a NaN is never chosen. One thread computes a row, so a row's result does not depend on
// others.
// REQUIRES: K ≥ 1, 0 ≤ also < V; sizes as stated (aborts otherwise). On a CPU blocking; allocates nothing.
#pragma once

#include "runtime/tensor.h"

namespace hadal {

class Stream;

struct TopCandidatesArgs {
  ConstMatrix logits;        // z [R, V]
  int32_t also = 0;          // the column for also_values, such as the end token's
  MatrixOf<int32_t> tokens;  // [R, K] (=); -1 after the last if fewer than K logits are no NaN
  Matrix values;             // [R, K] (=); -∞ after the last
  Vector also_values;        // [R] (=)
  VectorOf<int32_t> best;    // [R] (=) contiguous; may be the targets of kernels/cross_entropy.h
};
void TopCandidates(const Stream& stream, const TopCandidatesArgs& args);

}  // namespace hadal
