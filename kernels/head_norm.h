// Head norm: LayerNorm or RMSNorm over each head's columns, with one scale for all heads (query-key norm: Henry et al.
// 2020, arXiv 2010.04245; with learned scales as in Qwen3, arXiv 2505.09388).
//
//   y[r, h·D + j] = scale[j]·(x[r, h·D + j] − mean)·rstd + shift[j]     mean, rstd over the D columns of head h
// RMSNorm: mean = 0 and rstd = 1 / sqrt(mean(x²) + ε).
// Why an operation of its own: the gradient of `scale` is a sum over all rows and heads in blocks of rows. Attention
// could not add it in this order, because its units of work are pairs of a sentence and a head of keys. Memory
// traffic, in x's elements: forward reads x and writes y; backward reads dy and x and writes dx. Statistics are not
// stored: backward computes them again from x.
// Shapes: R packed rows, H heads of width D. (=): written; (+=): added to.
// Storage: x, y and their gradients share one type, fp32 or on a device bf16; scale, shift and their gradients: fp32.
// Numerics: fp32. Sums over a head's columns have one order, fixed by D. d_scale and d_shift add blocks of
// kHeadNormRowBlock rows; blocks are merged in an order fixed by their number, so the number of threads changes no bit.
// REQUIRES: matching shapes (aborts with both values otherwise); on a device D ≤ 256. Blocking on the CPU, asynchronous
// on a device; allocates nothing.
#pragma once

#include "kernels/residual_norm.h"
#include "runtime/tensor.h"

namespace hadal {

class Stream;

inline constexpr int64_t kHeadNormRowBlock = 32;

struct HeadNormForwardArgs {
  ConstAnyMatrix x;          // [R, H·D]
  ConstVector scale, shift;  // [D]; `shift` may be empty: 0
  NormForm form;
  AnyMatrix y;  // [R, H·D] (=); may be x
};
void HeadNormForward(const Stream& stream, const HeadNormForwardArgs& args);

struct HeadNormBackwardArgs {
  ConstAnyMatrix dy, x;  // [R, H·D]
  ConstVector scale;     // [D]
  NormForm form;
  AnyMatrix dx;             // [R, H·D] (=); may be dy
  Vector d_scale, d_shift;  // [D] (+=); d_shift empty without a shift
  Vector partials;          // scratch, HeadNormPartials(R, D) floats
};
void HeadNormBackward(const Stream& stream, const HeadNormBackwardArgs& args);

constexpr int64_t HeadNormPartials(int64_t rows, int64_t head_width) {
  return (rows + kHeadNormRowBlock - 1) / kHeadNormRowBlock * 2 * head_width;
}

// Head scale: each attention head's output times a learned scalar, y[r, h·D + j] = g[h]·x[r, h·D + j]. NormFormer
// (Shleifer et al. 2021) has it between the heads and the output product. Shapes and storage as above. d_gain adds
// blocks of kHeadScaleRowBlock rows, merged in ascending order.
inline constexpr int64_t kHeadScaleRowBlock = 32;

struct HeadScaleForwardArgs {
  ConstAnyMatrix x;  // [R, H·D]
  ConstVector gain;  // g [H]
  AnyMatrix y;       // [R, H·D] (=); may alias x
};
void HeadScaleForward(const Stream& stream, const HeadScaleForwardArgs& args);

//   dx = g·dy    d_gain[h] += Σ_rows Σ_j dy·x
struct HeadScaleBackwardArgs {
  ConstAnyMatrix dy, x;  // [R, H·D]
  ConstVector gain;      // [H]
  AnyMatrix dx;          // [R, H·D] (=); may alias dy
  Vector d_gain;         // [H] (+=)
  Vector partials;       // scratch, HeadScalePartials(R, H) floats
};
void HeadScaleBackward(const Stream& stream, const HeadScaleBackwardArgs& args);

constexpr int64_t HeadScalePartials(int64_t rows, int64_t heads) {
  return (rows + kHeadScaleRowBlock - 1) / kHeadScaleRowBlock * heads;
}

}  // namespace hadal
