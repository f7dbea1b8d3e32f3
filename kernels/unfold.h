// The neighbourhoods that a one-dimensional convolution reads, as rows of a matrix, so that the convolution is a linear
// layer (linear.h): kernel 5, stride 2, two zeros around each sentence, which is fairseq's Conv1dSubsampler.
//
//   unfold   u[r, 5c + k] = x[b + 2j + k − 2, c], 0 outside the sentence
//   fold     dx[b + 2j + k − 2, c] += du[r, 5c + k]
// r is row j of a sentence that begins at row b of x.
// A sentence of n rows of x has (n − 1)/2 + 1 rows of u. u's columns are in the order of a Conv1d's weight [out, C, 5].
// Shapes: x [all sentences' rows, C]; u [rows, 5C]: rows [first, first + rows) of all sentences' rows of u.
// Storage: dx is fp32; the others are fp32, or on a device bf16, but u and du may be bf16 where x is fp32.
// Numerics: fold adds rows in ascending order, then k (threads split columns).
// REQUIRES: a sentence of n rows by x_offsets has UnfoldedRows(n) rows by u_offsets (aborts otherwise). Blocking on the
// CPU, asynchronous on a device; allocates nothing.
#pragma once

#include <cstdint>

#include "kernels/device_batch.h"
#include "runtime/tensor.h"

namespace hadal {

class Stream;

inline constexpr int64_t kConvolutionTaps = 5;
inline constexpr int64_t kConvolutionStride = 2;

// Rows of u of a sentence of `rows` ≥ 1 rows of x.
constexpr int64_t UnfoldedRows(int64_t rows) { return (rows - 1) / kConvolutionStride + 1; }

struct UnfoldArgs {
  ConstAnyMatrix x;
  ConstTokens x_offsets, u_offsets;  // [sentences + 1]
  int64_t first = 0;                 // u's first row, counted over all sentences
  // On a device: the taps of all sentences' rows of u and of padding rows behind them, which become 0 in u. Empty: the
  // taps are computed from the offsets and copied; there are no padding rows.
  DeviceTaps device_taps;
  AnyMatrix u;  // (=): written
};
void Unfold(const Stream& stream, const UnfoldArgs& args);

struct FoldArgs {
  ConstAnyMatrix du;
  ConstTokens x_offsets, u_offsets;  // [sentences + 1]
  int64_t first = 0;                 // as in UnfoldArgs
  DeviceTaps device_taps;            // as in UnfoldArgs
  Matrix dx;                         // (+=): added to
};
void Fold(const Stream& stream, const FoldArgs& args);

}  // namespace hadal
