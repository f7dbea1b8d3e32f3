// Who looks at a sublayer's tensors while it works: instruments, the search for the first number that is not finite, reports on a
// checkpoint. The verbs say what they have just made; nobody listening costs a comparison with null.
//
// The tensors of sublayer k of s = r·x + b·dropout(F(x)) + e, in the order in which they are made:
//
//   forward    kNormInput           what its LayerNorm reads: s (post-norm) or x (pre-norm)
//              kHidden              a feed-forward's hidden layer, after ReLU and dropout         [R, d_ff]
//              kBranch              F(x), without its last bias
//              kOutput              the stream behind it (post-norm: behind its norm); an embedding's output
//              kModelOutput         what the output head reads
//   backward   kOutputGradient      ∂L/∂kOutput, everything added up
//              kNormOutputGradient  ∂L/∂ its LayerNorm's output
//              kNormInputGradient   ∂L/∂kNormInput (post-norm; of a pre-norm sublayer it is kOutputGradient of the one in front)
//              kBranchGradient      ∂L/∂F(x)
// A recomputation (activation checkpointing) reports nothing. Each tensor of each micro-batch comes once, with the same bits for every
// layout: where a tensor exists only times a gain, `factor` says which.
// Shapes: [R, d] but for kHidden; contiguous; valid during the call only. Thread safety: called by the rank's one compute thread.
#pragma once

#include <cstdint>

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

enum class DepthTensor : int32_t {
  kNormInput,
  kHidden,
  kBranch,
  kOutput,
  kModelOutput,
  kOutputGradient,
  kNormOutputGradient,
  kNormInputGradient,
  kBranchGradient,
};
inline constexpr int kDepthTensors = 9;

inline bool IsBackward(DepthTensor tensor) { return tensor >= DepthTensor::kOutputGradient; }

struct DepthObservation {
  DepthTensor tensor = DepthTensor::kOutput;
  int32_t sublayer = 0;
  ConstAnyMatrix values;  // in fp32 when an observer gets it
  float factor = 1;       // the tensor is values / factor; not 0
  ConstAnyMatrix before;  // kOutput of a residual sublayer: the stream in front of it
};

class DepthObserver {
 public:
  virtual ~DepthObserver() = default;
  virtual void Observe(const Stream& stream, int32_t micro_batch, const DepthObservation& observation) = 0;
};

}  // namespace hadal
