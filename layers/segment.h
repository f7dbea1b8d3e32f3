// A run of consecutive residual sublayers of one stack: the unit whose activations recomputation drops and
// computes again. A piece (piece.h) with a backward step for each sublayer.
//
// Between sublayers are *joints*. Joint j (j ≥ 1) ends sublayer j−1: one kernel (kernels/residual_norm.h) computes
//   s = r·x + b·dropout(F(x) + bias)
// and the norm that follows. Post-norm: that is the norm of sublayer j−1. Pre-norm: that is the norm of sublayer j.
// Joint 0 exists for pre-norm only: the first sublayer's norm alone, with the same bits as the fused norm. A pre-norm
// segment ends with the plain sum, or, at the end of a stack, with the closing norm.
//
//   post-norm:  x ─ F_0 ─ joint 1 (LN_0) ─ F_1 ─ joint 2 (LN_1) → y = normed
//   pre-norm:   x ─ joint 0 (LN_0) ─ F_0 ─ joint 1 (sum, LN_1) ─ F_1 ─ joint 2 (sum[, closing LN]) → sum or normed
//   no norm:    x ─ F_0 ─ joint 1 (sum) ─ F_1 ─ joint 2 (sum) → y = sum
// Where layers combine the outputs of all layers before them (layer_combination.h), a segment is one layer. Then x is
// the stack's history [l·R, d], joint 0 follows the combination, and a pre-norm layer's last joint ends with the norm
// of the layer's output.
// A joint may also add the layer's input (skip_gain); the whole layer is then in one segment. After a stack without
// norms learned scalars may follow the last sum: y = g·(sum − b) (R-Fixup).
//
// Tensors: reads x and, in a decoder, encoder_output; writes y. Backward works in place: d_x is d_y's memory. Where x
// is a history, d_y is overwritten and d_x is the history's gradient (+=), fp32.
// Pending: the gradient of the branch's output [R, d], then what the branch leaves.
// Numerics: where a model is cut into segments changes no bit.
// Thread safety: const after construction; one micro-batch at a time a workspace.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "layers/branch.h"
#include "layers/layer_combination.h"
#include "layers/model_plan.h"
#include "layers/piece.h"
#include "layers/saved_tensors.h"
#include "layers/sublayer_context.h"

namespace hadal {

class Segment final : public Piece {
 public:
  // Sublayers [first, last) of the plan.  REQUIRES: not empty, one stack, no embedding and no head.
  Segment(const ModelPlan& plan, int32_t first, int32_t last, const ActivationCapacity& capacity);

  // How y is stored: after a stack that does not combine its layers as products read it, else as the residual stream.
  Storage output_storage() const { return output_storage_; }
  // Entries of the history that x is; 0: x is the residual stream.
  int64_t history_entries() const { return combination_ ? combination_->entries() : 0; }

  int64_t saved_bytes() const override { return saved_.bytes(); }
  int32_t steps() const override { return last_ - first_; }
  int64_t pending_bytes(int32_t step) const override {
    return branch_pending_ + branches_[step]->PendingBytes(capacity_);
  }
  // Calls for progress after each sublayer.
  void Forward(const SublayerContext& context, const PieceTensors& tensors) const override;
  void BackwardInput(const SublayerContext& context, const PieceTensors& tensors, int32_t step) const override;
  // Calls for progress at its end.
  void BackwardWeight(const SublayerContext& context, const PieceTensors& tensors, int32_t step) const override;

 private:
  // Offsets in bytes into `saved`. The tensors are [rows, d]; mean and rstd are [rows]. `sum` is stored as the residual
  // stream; `branch`, `normed` (in post-norm sublayers the residual stream) and `rounded` as products read and write
  // them.
  struct Joint {
    int32_t norm_scale = -1;  // parameter; its shift follows. -1: no norm
    bool output_is_normed = true;
    int64_t sum = 0, normed = 0, mean = 0, rstd = 0;
    // The residual stream as products read it; only where no norm follows and the two types differ.
    int64_t rounded = -1;
    int64_t branch = -1;     // the branch's output; kept only where its gain is learned
    int32_t skip_from = -1;  // the sublayer of this segment whose input is added as well; -1: none
    int32_t omega = -1;      // parameter; -1: none
    int32_t closing_shift = -1, closing_scale = -1;  // parameters; -1: none
  };
  // The tensors behind the combination: x is what the first sublayer reads.  [R, d]
  struct Layers : PieceTensors {};

  Joint MakeJoint(const ModelPlan& plan, size_t index);
  // Whether the norm that ends the segment writes another type than y has: the norm of a pre-norm layer's output, which
  // goes into a history.
  bool NormedApart() const { return output_storage_ != compute_storage_; }
  // `rows`: R.
  Layers BehindCombination(const PieceTensors& tensors, int64_t rows) const;
  void ForwardJoint(const SublayerContext& context, size_t index, ConstAnyMatrix branch, const Layers& t) const;
  void BackwardJoint(const SublayerContext& context, size_t index, ConstAnyMatrix d_normed, const Layers& t) const;
  // The sum of joint `index`.
  AnyMatrix SumOf(size_t index, const Layers& t) const;
  // The gradient of the output of joint `index`'s norm, as products store it; empty where there is no norm.
  ConstAnyMatrix NormedGradient(const SublayerContext& context, size_t index, const Layers& t) const;
  // Backward of the closing scalars, in place.
  void BackwardClosing(const SublayerContext& context, const Layers& t) const;
  // Show what joint `index` has made, and the gradients around it, before and after its backward.
  void ObserveForward(const SublayerContext& context, size_t index, const Layers& t) const;
  void ObserveBackwardBefore(const SublayerContext& context, size_t index, ConstAnyMatrix d_normed,
                             const Layers& t) const;
  void ObserveBackwardAfter(const SublayerContext& context, size_t index, const Layers& t) const;
  // The residual stream after joint `index` (index 0: x).
  ConstAnyMatrix ResidualAfter(size_t index, const Layers& t) const;
  // What sublayer `index` of this segment reads.
  ConstAnyMatrix BranchInput(size_t index, const Layers& t) const;
  // The tensors of a branch's backward.
  PieceTensors BranchTensors(const SublayerContext& context, size_t index, const Layers& t) const;
  // The gradient of the output of the branch at hand.
  AnyMatrix BranchGradient(const Layers& t) const { return {t.pending, t.d_y.rows, d_model_, compute_storage_}; }
  // `rows` rows at an offset into `saved`: stored as the residual stream, or as products read and write.
  AnyMatrix ResidualAt(std::byte* saved, int64_t offset, int64_t rows) const {
    return {saved + offset, rows, d_model_, residual_storage_};
  }
  AnyMatrix ProductAt(std::byte* saved, int64_t offset, int64_t rows) const {
    return {saved + offset, rows, d_model_, compute_storage_};
  }

  int32_t first_, last_;
  ActivationCapacity capacity_;
  bool pre_norm_;
  int64_t d_model_;
  double dropout_;
  Storage compute_storage_, residual_storage_, output_storage_;
  SavedTensors<std::byte> saved_{nullptr};  // only measures
  std::optional<LayerCombination> combination_;
  int64_t combination_saved_ = 0, combined_ = 0;  // byte offsets of what the combination keeps, and of its result
  std::vector<std::unique_ptr<Branch>> branches_;
  std::vector<int64_t> branch_saved_;  // offset of each branch's saved tensors
  int64_t branch_pending_ = 0;         // offset of what a branch leaves
  std::vector<Joint> joints_;          // branches + 1
  std::vector<bool> skipped_from_;     // whether a later joint adds the sublayer's input
};

}  // namespace hadal
