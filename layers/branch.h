// F of the residual connection s = r·x + b·dropout(F(x)) + e: what a sublayer computes between its norms.
//
// Three verbs. `Forward` keeps in `saved` what backward needs. `BackwardInput` takes the gradient of the branch's
// output and leaves inner gradients in the workspace. `BackwardWeight` reads those inner gradients, so it must run
// before the next BackwardInput (1F1B calls the two in a row). The last product's bias (out_proj.bias, fc2.bias) is
// added by the residual connection's kernel, which also sums the bias's gradient: that kernel reads the product anyway.
// Shapes: x, y and their gradients [R, d]; R = source rows in the encoder, target rows in the decoder.
// Storage: ModelPlan::compute_storage; d_x may also be stored as the residual stream.
// Numerics: weight gradients are added up in fp32, in the order of the calls: ascending micro-batches in every
// schedule.
// Thread safety: const; one micro-batch at a time a workspace. On a device it only launches. Allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "layers/model_plan.h"
#include "layers/sublayer_context.h"
#include "runtime/tensor.h"

namespace hadal {

class Branch {
 public:
  virtual ~Branch() = default;

  // Bytes that Forward keeps of one micro-batch at full capacity.
  virtual int64_t SavedBytes(const ActivationCapacity& capacity) const = 0;
  // y = F(x) without the last bias (=).
  virtual void Forward(const SublayerContext& context, ConstAnyMatrix x, std::byte* saved, AnyMatrix y) const = 0;
  // d_x (+)= F'ᵀ·d_y; cross-attention also adds to context.d_encoder_output.
  virtual void BackwardInput(const SublayerContext& context, ConstAnyMatrix d_y, const std::byte* saved,
                             bool accumulate, AnyMatrix d_x) const = 0;
  // Adds to the gradients of the branch's weights and inner biases.
  virtual void BackwardWeight(const SublayerContext& context, ConstAnyMatrix x, ConstAnyMatrix d_y,
                              const std::byte* saved) const = 0;
  // The parameter that holds the last bias; -1 where the branch adds it itself.
  virtual int32_t output_bias() const = 0;
};

// The branch of plan.sublayers[sublayer].  REQUIRES: an attention or feed-forward sublayer.
std::unique_ptr<Branch> MakeBranch(const ModelPlan& plan, int32_t sublayer);

}  // namespace hadal
