// A learned scalar taken off what a product reads, x − b: R-Fixup's. Other methods have none; then the product reads x itself.
//
// Source: R-Fixup (Zhang, Dauphin and Ma 2019).
// Shapes: x, its shifted copy and gradients [R, W]; b [1].
// Numerics: kernels/shift_scale.h. Storage: x and its copy as products read them; dx may be as the residual stream.
// Thread safety: const; one micro-batch at a time a workspace.
#pragma once

#include <cstdint>

#include "kernels/linear.h"
#include "layers/model_plan.h"
#include "layers/sublayer_context.h"
#include "runtime/tensor.h"

namespace hadal {

class InputShift {
 public:
  // Absent when the sublayer has no parameter of this role.
  InputShift(const ModelPlan& plan, int32_t sublayer, ParameterRole role) : shift_(plan.ParameterOf(sublayer, role)) {}

  bool present() const { return shift_ >= 0; }
  // Makes the shifted copy (=), which may be empty where the scalar is absent; returns what the product reads.
  ConstAnyMatrix Forward(const SublayerContext& context, ConstAnyMatrix x, AnyMatrix shifted) const;
  // The same again, once it is made.
  ConstAnyMatrix Read(ConstAnyMatrix x, ConstAnyMatrix shifted) const { return present() ? shifted : x; }
  // The product's gradient `product` through the shift: dx (+)= dy·W, and b's gradient. With product.accumulate it takes
  // branch_input_gradient of the workspace.
  void BackwardInput(const SublayerContext& context, const LinearBackwardInputArgs& product) const;

 private:
  int32_t shift_;
};

// The bias of the first feed-forward product as one row, stored as the product is: b_1 − b, where `bias` −1 stands for b_1 = 0.
// Fills `row` [1, d_ff] (=), and returns it as the product takes it.
ConstAnyVector MakeHiddenBias(const Stream& stream, const ParameterStore& parameters, int32_t bias, int32_t shift,
                              AnyMatrix row);

}  // namespace hadal
