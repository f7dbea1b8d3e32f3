// The tail of an attention branch, from the heads' outputs c to the branch's output y:
//
//   y = post( inner( g ⊙ c )·W_oᵀ + b_o )       c [R, d], the heads side by side
//     g      one learned scalar per head        NormFormer (Shleifer et al. 2021; before W_o, as in the paper)
//     inner  LayerNorm over d                   Sub-LN (Magneto, arXiv 2210.06423 section 2)
//     post   LayerNorm over d                   NormFormer
// Each of the three exists only if the method has it. Without `post` the residual connection's kernel adds the bias.
//
// Saved, in this order and only as far as they exist: g ⊙ c [R, d]; output [R, d] and statistics [2R] of `inner`; input
// [R, d] and statistics [2R] of `post`.
// Thread safety: const; one micro-batch at a time per workspace.
#pragma once

#include <cstdint>

#include "layers/inner_norm.h"
#include "layers/model_plan.h"
#include "layers/saved_tensors.h"
#include "layers/sublayer_context.h"
#include "runtime/tensor.h"

namespace hadal {

class AttentionOutput {
 public:
  // REQUIRES: an attention sublayer.
  AttentionOutput(const ModelPlan& plan, int32_t sublayer);

  int64_t SavedBytes(int64_t rows) const { return Views<std::byte>(nullptr, rows).bytes; }
  // Writes y.
  void Forward(const SublayerContext& context, ConstAnyMatrix attended, std::byte* saved, AnyMatrix y) const;
  // Writes d_attended; adds to the gradients of g and of both norms.
  void BackwardInput(const SublayerContext& context, ConstAnyMatrix d_y, ConstAnyMatrix attended,
                     const std::byte* saved, AnyMatrix d_attended) const;
  // Adds to the gradient of W_o, and of b_o if this class adds the bias. Must be called after BackwardInput.
  void BackwardWeight(const SublayerContext& context, ConstAnyMatrix d_y, ConstAnyMatrix attended,
                      const std::byte* saved) const;
  // The parameter b_o, which the residual connection's kernel must add; -1: this class adds b_o, or there is none.
  int32_t bias() const { return output_norm_.present() ? -1 : bias_; }

 private:
  template <typename Byte>
  struct Saved {
    SavedMatrix<Byte> scaled, normed, projected;  // empty if they do not exist
    SavedFloat<Byte>*normed_statistics = nullptr, *projected_statistics = nullptr;
    int64_t bytes = 0;

    // The inputs of the inner norm and of W_o.
    ConstAnyMatrix Scaled(ConstAnyMatrix attended) const { return scaled.empty() ? attended : ConstAnyMatrix(scaled); }
    ConstAnyMatrix Normed(ConstAnyMatrix attended) const {
      return normed.empty() ? Scaled(attended) : ConstAnyMatrix(normed);
    }
  };
  template <typename Byte>
  Saved<Byte> Views(Byte* saved, int64_t rows) const {
    SavedTensors tensors(saved);
    Saved<Byte> s;
    if (head_scale_ >= 0) s.scaled = tensors.Take(storage_, rows, d_model_);
    if (inner_norm_.present()) {
      s.normed = tensors.Take(storage_, rows, d_model_);
      s.normed_statistics = tensors.TakeFloats(rows, 2).data;
    }
    if (output_norm_.present()) {
      s.projected = tensors.Take(storage_, rows, d_model_);
      s.projected_statistics = tensors.TakeFloats(rows, 2).data;
    }
    s.bytes = tensors.bytes();
    return s;
  }

  Storage storage_;
  int64_t d_model_;
  int32_t weight_, bias_;  // W_o, b_o
  int32_t head_scale_;
  InnerNorm inner_norm_, output_norm_;
};

}  // namespace hadal
