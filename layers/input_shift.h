// R-Fixup's learned scalar b, subtracted from the input of a product: x − b. In other methods the product reads x
// itself.
//
// Source: R-Fixup (Zhang, Dauphin and Ma 2019).
// Shapes: x, its shifted copy and gradients [R, W]; b [1].
// Numerics: kernels/shift_scale.h. Storage: x and its copy in the type of products; dx may have the residual stream's.
// Thread safety: const; one micro-batch at a time per workspace.
#pragma once

#include <cstdint>

#include "kernels/linear.h"
#include "layers/model_plan.h"
#include "layers/sublayer_context.h"
#include "runtime/tensor.h"

namespace hadal {

class InputShift {
 public:
  // Absent if the sublayer has no parameter of this role.
  InputShift(const ModelPlan& plan, int32_t sublayer, ParameterRole role) : shift_(plan.ParameterOf(sublayer, role)) {}

  bool present() const { return shift_ >= 0; }
  // Writes the shifted copy and returns it. Without the scalar returns x; `shifted` may be empty then.
  ConstAnyMatrix Forward(const SublayerContext& context, ConstAnyMatrix x, AnyMatrix shifted) const;
  // Returns what Forward returned.
  ConstAnyMatrix Read(ConstAnyMatrix x, ConstAnyMatrix shifted) const { return present() ? shifted : x; }
  // Backward of `product`, which read the shifted input: dx (+)= dy·W, and b's gradient. With product.accumulate it
  // uses branch_input_gradient of the workspace.
  void BackwardInput(const SublayerContext& context, const LinearBackwardInputArgs& product) const;

 private:
  int32_t shift_;
};

// Computes the bias of the first feed-forward product, b_1 − b, in the product's type; writes it to `row` [1, d_ff] and
// returns it. `bias`: the parameter b_1; −1: b_1 = 0.
ConstAnyVector MakeHiddenBias(const Stream& stream, const ParameterStore& parameters, int32_t bias, int32_t shift,
                              AnyMatrix row);

}  // namespace hadal
