// The K largest logits of each row, largest first: what a beam search looks at.
//
//   tokens[i, 0 … K) = the columns of the K largest z[i, v], in descending order; of equal logits the lower column first
// Why its own op: a beam of 4 wants about 10 of 8,000 logits; one read of the row finds them, most vectors fail one comparison.
// Shapes: R rows, V vocabulary.
// Numerics: comparisons only; a NaN is never chosen. One thread a row: a row's result does not depend on the other rows.
// REQUIRES: K ≥ 1; sizes as stated (aborts otherwise). Blocking; allocates nothing.
#pragma once

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

struct TopCandidatesArgs {
  ConstMatrix logits;        // z [R, V]
  MatrixOf<int32_t> tokens;  // [R, K] (=); -1 behind the last when a row has fewer than K numbers
};
void TopCandidates(const Stream& stream, const TopCandidatesArgs& args);

}  // namespace hadal
