// The neighbourhoods that a one-dimensional convolution reads, as rows of a matrix, so that the convolution is a linear
// layer (linear.h): kernel 5, stride 2, two zeros around each sentence, which is fairseq's Conv1dSubsampler.
//
//   unfold   u[r, 5c + k] = x[b + 2j + k − 2, c], 0 outside the sentence
//   fold     dx[b + 2j + k − 2, c] += du[r, 5c + k]
// r is row j of a sentence that begins at row b of x.
// A sentence of n rows of x has (n − 1)/2 + 1 rows of u. u's columns are in the order of a Conv1d's weight [out, C, 5].
// Shapes: x [sentences' rows, C], u [rows, 5C]: the rows [first, first + rows) of all sentences' rows.
// Storage: fp32. A CPU alone. Numerics: fold adds rows in ascending order, then k (threads split columns).
// REQUIRES: offsets that belong to each other (aborts otherwise). Blocking; allocates nothing.
#pragma once

#include <cstdint>

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

inline constexpr int64_t kConvolutionTaps = 5;
inline constexpr int64_t kConvolutionStride = 2;

// Rows of u of a sentence of `rows` ≥ 1 rows of x.
constexpr int64_t UnfoldedRows(int64_t rows) { return (rows - 1) / kConvolutionStride + 1; }

struct UnfoldArgs {
  ConstMatrix x;
  ConstTokens x_offsets, u_offsets;  // [sentences + 1]
  int64_t first = 0;
  Matrix u;  // (=)
};
void Unfold(const Stream& stream, const UnfoldArgs& args);

struct FoldArgs {
  ConstMatrix du;
  ConstTokens x_offsets, u_offsets;  // [sentences + 1]
  int64_t first = 0;
  Matrix dx;  // (+=)
};
void Fold(const Stream& stream, const FoldArgs& args);

}  // namespace hadal
