// DepthObserver: an interface that receives each sublayer's tensors during forward and backward, for the depth
// instruments, the search for the first non-finite number, and reports on a checkpoint. Layers call Observe after they
// have computed a tensor; without an observer this costs one comparison with null.
//
// The tensors of a sublayer with s = r·x + b·dropout(F(x)) + a·e (kernels/residual_norm.h), in the order in which
// pre-norm makes them:
//
//   forward    kNormInput           input of the LayerNorm: s (post-norm) or x (pre-norm)
//              kHidden              a feed-forward's hidden layer, after ReLU and dropout         [R, d_ff]
//              kBranch              F(x), without its last bias
//              kOutput              the residual after the sublayer (post-norm: after its norm); an embedding's output
//              kSecondStream        the second stream after the sublayer, if the stack has one (second_stream.h)
//              kModelOutput         what the output head reads
//   backward   kOutputGradient      ∂L/∂kOutput, complete: the sum over all readers
//              kNormOutputGradient  ∂L/∂ the output of the LayerNorm
//              kNormInputGradient   ∂L/∂kNormInput; reported for post-norm, n residual streams and the norm of a
//                                   combination of layers (DLCL, layer_combination.h); elsewhere it is
//                                   kOutputGradient of the sublayer before
//              kBranchGradient      ∂L/∂F(x)
// In a stack with a second stream, neither that stream's gradient nor kNormInputGradient of the first sublayer is
// reported. Where a stack has n residual streams (hyper_segment.cc), kOutput, DepthObservation::before and
// kOutputGradient have all of them, [R, n·d], and kNormInput is the sublayer's input, which it reads from them.
// Recomputation reports nothing. Each tensor of each micro-batch is reported once, with the same bits for every
// pipeline layout. If a tensor exists only multiplied by a gain, `factor` is that gain.
// Shapes: [R, d], kHidden [R, d_ff]; contiguous; valid during the call only. Thread safety: called by the rank's one
// compute thread.
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
  kSecondStream,
  kModelOutput,
  kOutputGradient,
  kNormOutputGradient,
  kNormInputGradient,
  kBranchGradient,
};
inline constexpr int kDepthTensors = 10;

inline bool IsBackward(DepthTensor tensor) { return tensor >= DepthTensor::kOutputGradient; }

struct DepthObservation {
  DepthTensor tensor = DepthTensor::kOutput;
  int32_t sublayer = 0;
  ConstAnyMatrix values;  // fp32 when an observer gets it
  float factor = 1;       // the tensor is values / factor; not 0
  ConstAnyMatrix before;  // kOutput of a residual sublayer: the residual stream before it
};

class DepthObserver {
 public:
  virtual ~DepthObserver() = default;
  // Receives one tensor. `micro_batch`: its index in the step.
  virtual void Observe(const Stream& stream, int32_t micro_batch, const DepthObservation& observation) = 0;
};

}  // namespace hadal
