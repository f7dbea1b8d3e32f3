// Linear layers: y = x·Wᵀ + b and its two gradients.
//
//   forward          y[R, out]  = epilogue(x[R, in] · W[out, in]ᵀ)         epilogue: + bias, ReLU, dropout (each optional)
//   backward input   dx[R, in] (+)= dy[R, out] · W[out, in], times the ReLU/dropout mask where asked
//   backward weight  dW[out, in] += dy[R, out]ᵀ · x[R, in];  db[out] += Σ_rows dy
//
// Why one op: the epilogues ride on the product's output while it is in cache. On a device cuBLASLt has them too, but dropout, where it
// offers them for the shape; what it does not offer is a kernel of its own beside the product (cuda/linear_epilogue.h), with the same results
// but for one rounding more of a bias in bf16, and another order of db's sum.
// Shapes: R packed token rows; weights are [out, in], as fairseq and PyTorch store them.
// Storage: operands, and outputs but for weights' gradients, are fp32, or on a device bf16: both operands of a product alike, its output as
// they are or fp32; sums are fp32 in either case. A bias is stored as its y is.
// Numerics on the CPU: fp32. A product's terms are summed in the order of oneDNN's serial sgemm, a function of shapes, strides and
// instruction set, not of addresses. Threads split output rows, and their number changes no bit: on AVX-512 in ranges of
// ≥ 16 rows, where a row's bits do not depend on the rows around it (a product of ≤ 8 rows takes another code path and does
// differ); on older instruction sets, where they do, in blocks of fixed bounds. db adds rows in ascending order.
// A NaN passes through the ReLU. Limitation: below AVX-512 a row's bits may depend on the number of rows in its product.
// REQUIRES everywhere: matching shapes (aborts with both values otherwise). Blocking. Allocates nothing itself; oneDNN takes
// up to about 10 MiB a thread while it runs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/random.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

// The mask of a ReLU between two products, x → W_1 → ReLU → W_2, as a device's library notes it beside the first product's output and reads
// it back where it makes the gradient of the second's input: one bit an element, in an order of its own. With it the backward reads no
// relu_output, and dx is written once.
struct ReluMaskArgs {
  int64_t rows = 0;
  ConstAnyMatrix hidden_weight;       // W_1 [hidden, in]
  bool hidden_bias = false;           // whether there is one in front of the ReLU
  ConstAnyMatrix contraction_weight;  // W_2 [out, hidden]
};
// Of a mask of [rows, hidden] elements: each row starts on 16 bytes.
constexpr int64_t ReluMaskBytes(int64_t rows, int64_t hidden) { return rows * ((hidden + 127) / 128) * 16; }
// Whether LinearForward can write such a mask and LinearBackwardInput read it: both or none, a function of shapes, storage, device and library
// alone, so the same in forward, backward and recomputation. Never on a CPU.
bool HasReluMask(const Stream& stream, const ReluMaskArgs& args);

struct LinearForwardArgs {
  ConstAnyMatrix x;       // [R, in]
  ConstAnyMatrix weight;  // [out, in]
  ConstAnyVector bias;    // [out], or empty
  bool relu = false;      // max(0, ·) after the bias
  Dropout dropout;        // after the ReLU; inactive by default
  // [ReluMaskBytes(R, out)] (=), on 16 bytes, or null.  REQUIRES: HasReluMask; relu; no dropout; x and y dense, on 16 bytes
  std::byte* relu_mask = nullptr;
  AnyMatrix y;  // [R, out]  (=)
};
void LinearForward(const Stream& stream, const LinearForwardArgs& args);

struct LinearBackwardInputArgs {
  ConstAnyMatrix dy;      // [R, out]
  ConstAnyMatrix weight;  // [out, in]
  // Where the forward's y fed this layer through ReLU and dropout, its stored value y: dx becomes y > 0 ? dx · mask_scale : 0
  // (a dropped element is stored as 0, so no random number is drawn again). Empty: no mask. REQUIRES: accumulate = false.
  ConstAnyMatrix relu_output;  // [R, in]
  float mask_scale = 1.0f;     // Dropout::scale() of that dropout, 1 without dropout
  // In place of relu_output the mask that the forward wrote, or null.  REQUIRES: HasReluMask; mask_scale = 1; accumulate = false; dy and dx
  // dense, on 16 bytes
  const std::byte* relu_mask = nullptr;
  bool accumulate = false;  // dx += instead of dx =
  AnyMatrix dx;             // [R, in]
};
void LinearBackwardInput(const Stream& stream, const LinearBackwardInputArgs& args);

// The mask of relu_output alone, where something stands between the ReLU and the product: dx = y > 0 ? dx · mask_scale : 0.
struct ReluBackwardArgs {
  ConstAnyMatrix relu_output;  // y [R, W]
  float mask_scale = 1.0f;
  AnyMatrix dx;  // [R, W], in place
};
void ReluBackward(const Stream& stream, const ReluBackwardArgs& args);

struct LinearBackwardWeightArgs {
  ConstAnyMatrix dy;  // [R, out]
  ConstAnyMatrix x;   // [R, in]
  Matrix d_weight;    // [out, in]  (+=)
  Vector d_bias;      // [out]      (+=), or empty
};
void LinearBackwardWeight(const Stream& stream, const LinearBackwardWeightArgs& args);

}  // namespace hadal
