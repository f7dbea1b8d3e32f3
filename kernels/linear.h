// Linear layers: y = x·Wᵀ + b and its two gradients.
//
//   forward          y[R, out]  = epilogue(x[R, in] · W[out, in]ᵀ)      epilogue: + bias, ReLU, dropout (each optional)
//   backward input   dx[R, in] = or += dy[R, out] · W[out, in], times the ReLU/dropout mask (optional)
//   backward weight  dW[out, in] += dy[R, out]ᵀ · x[R, in];  db[out] += Σ_rows dy
//
// Bias, ReLU and dropout are applied while the product's output is in cache. linear.md states which of them a device's
// library fuses into the product, and how its results differ.
// Shapes: R packed token rows; weights are [out, in], as fairseq and PyTorch store them. (=): written, (+=): added.
// Storage: fp32, or on a device bf16. Both operands of a product have one type; its output has that type or fp32. A
// bias has y's type. Gradients of weights and all sums are fp32.
// Numerics on the CPU: fp32. Each element of y and dx is one chain of fused multiply-adds over ascending terms, and of
// dW one for each 512 rows (kernels/cpu/product.h). Neither the other rows nor threads nor the instruction set, if it
// has FMA, change a bit. db adds rows in ascending order. ReLU keeps a NaN.
// REQUIRES everywhere: matching shapes (aborts with both values otherwise). Blocking on the CPU, asynchronous on a
// device. Allocates nothing, except PackWeight.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/random.h"
#include "runtime/tensor.h"

namespace hadal {

class Stream;

class GradientBatch;  // gradient_batch.h

// The mask of the ReLU between two products, x → W_1 → ReLU → W_2: one bit per element, in an order that the device's
// library chooses. The library writes the mask in the first product's forward and reads it in the second product's
// backward, which then does not read relu_output and writes dx once.
struct ReluMaskArgs {
  int64_t rows = 0;
  ConstAnyMatrix hidden_weight;       // W_1 [hidden, in]; of both weights only shape and type count
  bool hidden_bias = false;           // whether a bias is added before the ReLU
  ConstAnyMatrix contraction_weight;  // W_2 [out, hidden]
};
// Bytes of the mask of [rows, hidden] elements; each row is 16-byte aligned.
constexpr int64_t ReluMaskBytes(int64_t rows, int64_t hidden) { return rows * ((hidden + 127) / 128) * 16; }
// Whether LinearForward can write the mask and LinearBackwardInput read it: both or neither. Depends only on shapes,
// storage, device and library, so it is the same in forward, backward and recomputation. False on a CPU.
bool HasReluMask(const Stream& stream, const ReluMaskArgs& args);

struct LinearForwardArgs {
  ConstAnyMatrix x;       // [R, in]
  ConstAnyMatrix weight;  // [out, in]; on a CPU also in panels (PackWeight)
  ConstAnyVector bias;    // [out], or empty
  bool relu = false;      // max(0, ·) after the bias
  Dropout dropout;        // after the ReLU; inactive by default
  // [ReluMaskBytes(R, out)] (=), 16-byte aligned, or null. REQUIRES: HasReluMask; relu; no dropout; x and y dense and
  // 16-byte aligned.
  std::byte* relu_mask = nullptr;
  AnyMatrix y;  // [R, out]  (=)
};
void LinearForward(const Stream& stream, const LinearForwardArgs& args);

// Rearranges a weight in place for LinearForward on this CPU, which then copies no part of it. Weights of equal width
// that lie one behind the other, each packed, can be read as one packed weight. Results keep their bits.
// REQUIRES: the CPU; contiguous; weight.rows a multiple of kPackedRows. Allocates scratch.
constexpr int64_t kPackedRows = 32;
void PackWeight(const Matrix& weight);

struct LinearBackwardInputArgs {
  ConstAnyMatrix dy;      // [R, out]
  ConstAnyMatrix weight;  // [out, in]
  // If this layer's input is the output of a ReLU and dropout: that output. dx becomes relu_output > 0 ? dx ·
  // mask_scale : 0. A dropped element is stored as 0, so no random number is drawn again. Empty: no mask. REQUIRES:
  // accumulate = false.
  ConstAnyMatrix relu_output;  // [R, in]
  float mask_scale = 1.0f;     // Dropout::scale() of the forward's dropout; 1 without dropout
  // The mask that the forward wrote, instead of relu_output; or null. REQUIRES: HasReluMask; mask_scale = 1; accumulate
  // = false; dy and dx dense and 16-byte aligned.
  const std::byte* relu_mask = nullptr;
  // The gradient of the bias that was added before the ReLU: Σ_r dx[r] (+=), computed in the pass over dx that applies
  // the mask; or empty. REQUIRES: a device; relu_output.
  Vector relu_bias_gradient;       // [in]
  GradientBatch* batch = nullptr;  // on a device: relu_bias_gradient is complete after its Launch; null: at once
  bool accumulate = false;         // dx += instead of dx =
  AnyMatrix dx;                    // [R, in]
};
void LinearBackwardInput(const Stream& stream, const LinearBackwardInputArgs& args);

// The ReLU's mask alone, if another operation lies between ReLU and product: dx = y > 0 ? dx · mask_scale : 0.
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
  // On a device: the batch launches the product later; dy and x must not change before. Null: at once.
  GradientBatch* batch = nullptr;
};
void LinearBackwardWeight(const Stream& stream, const LinearBackwardWeightArgs& args);

}  // namespace hadal
