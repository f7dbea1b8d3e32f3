// Segment: consecutive residual sublayers of one stack. Activation recomputation drops and recomputes whole segments. A
// segment is a part (chunk_part.h) with one backward step per sublayer.
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
// If a stack combines the outputs of all earlier layers (layer_combination.h), a segment is one layer. x is then the
// stack's history [l·R, d], joint 0 follows the combination, and the last joint of a pre-norm layer ends with the norm
// of the layer's output.
// With a second stream (second_stream.h) a joint's kernel also updates that one, in the same pass over memory.
// A joint may also add the layer's input (skip_gain); the whole layer is then in one segment. In R-Fixup, which has no
// norms, learned scalars follow the last sum of a stack: y = g·(sum − b).
//
// Tensors: reads x and, in a decoder, encoder_output; writes y. Backward is in place (d_x is d_y's memory), except if x
// is a history: then it overwrites d_y and adds to d_x, the history's gradient, in fp32.
// Pending: the gradient of the branch's output [R, d], then the branch's own pending tensors.
// Numerics: the division of a model into segments does not change any bit.
// Thread safety: const after construction; one micro-batch at a time per workspace.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "layers/branch.h"
#include "layers/chunk_part.h"
#include "layers/layer_combination.h"
#include "layers/model_plan.h"
#include "layers/saved_tensors.h"
#include "layers/sublayer_context.h"

namespace hadal {

// Creates the part of sublayers [first, last): a Segment, or a HyperSegment (hyper_segment.h) where the stack has
// several residual streams.
std::unique_ptr<ChunkPart> MakeSegment(const ModelPlan& plan, int32_t first, int32_t last,
                                       const ActivationCapacity& capacity);

class Segment final : public ChunkPart {
 public:
  // Sublayers [first, last) of the plan.  REQUIRES: first < last; residual sublayers of one stack and one placement of
  // norms.
  Segment(const ModelPlan& plan, int32_t first, int32_t last, const ActivationCapacity& capacity);

  int64_t saved_bytes() const override { return kept_.bytes() + input_.bytes(); }
  int64_t saved_input_bytes() const override { return input_.bytes(); }
  int32_t steps() const override { return last_ - first_; }
  int64_t pending_bytes(int32_t step) const override {
    return branch_pending_ + branches_[step]->PendingBytes(capacity_);
  }
  // Calls the context's progress callback after each sublayer.
  void Forward(const SublayerContext& context, const PartTensors& tensors) const override;
  void BackwardInput(const SublayerContext& context, const PartTensors& tensors, int32_t step) const override;
  // Calls the context's progress callback at its end.
  void BackwardWeight(const SublayerContext& context, const PartTensors& tensors, int32_t step) const override;

 private:
  // A tensor's place in `saved`, or in saved_input.
  struct SavedOffset {
    int64_t offset = 0;
    bool in_input = false;
  };
  // Byte offsets of tensors [rows, d] in `saved`; `branch`, `mean` and `rstd` (both [rows]) are in saved_input. Stored
  // types: `sum` as the residual stream; `branch`, `normed` and `rounded` in the compute type (`normed` of post-norm
  // sublayers as the residual stream).
  struct Joint {
    int32_t norm_scale = -1;  // parameter; its shift follows. -1: no norm
    float norm_gain = 1;      // k, of the sublayer that reads the norm; 1 for a norm that ends a sublayer or a stack
    bool output_is_normed = true;
    SavedOffset sum;  // without norms products read it
    int64_t normed = 0, mean = 0, rstd = 0;
    // The residual stream in the compute type; only without a following norm and if the two types differ.
    int64_t rounded = -1;
    int64_t branch = -1;                             // the output of the branch; saved only if its gain is learned
    int32_t skip_from = -1;                          // the sublayer of this segment whose input is also added; -1: none
    int32_t omega = -1;                              // parameter; -1: none
    int32_t closing_shift = -1, closing_scale = -1;  // parameters; -1: none
  };
  // The tensors as seen by the sublayers: x is the input of the first one, after the combination if any.  [R, d].
  // saved_input is not null.
  struct Layers : PartTensors {};

  Joint MakeJoint(const ModelPlan& plan, size_t index);
  // Returns whether the norm at the end of the segment writes a type other than y's. This is so for the norm of a
  // pre-norm layer's output, which is stored in a history.
  bool NormedApart() const { return output_storage_ != compute_storage_; }
  // `rows`: R.
  Layers BehindCombination(const PartTensors& tensors, int64_t rows) const;
  void ForwardJoint(const SublayerContext& context, size_t index, ConstAnyMatrix branch, const Layers& t) const;
  void BackwardJoint(const SublayerContext& context, size_t index, ConstAnyMatrix d_normed, const Layers& t) const;
  // Returns the sum of joint `index`.
  AnyMatrix SumOf(size_t index, const Layers& t) const;
  // Returns the gradient of joint `index`'s norm output in the compute type; empty without a norm.
  ConstAnyMatrix NormedGradient(const SublayerContext& context, size_t index, const Layers& t) const;
  // Computes the backward of the closing scalars, in place.
  void BackwardClosing(const SublayerContext& context, const Layers& t) const;
  // Report tensors of joint `index` to the observer: its results, and the gradients before and after its backward.
  void ObserveForward(const SublayerContext& context, size_t index, const Layers& t) const;
  void ObserveBackwardBefore(const SublayerContext& context, size_t index, ConstAnyMatrix d_normed,
                             const Layers& t) const;
  void ObserveBackwardAfter(const SublayerContext& context, size_t index, const Layers& t) const;
  // Returns where joint `index` keeps its sum.
  AnyMatrix KeptSum(size_t index, const Layers& t) const;
  // Returns the residual stream after joint `index` (index 0: x).
  ConstAnyMatrix ResidualAfter(size_t index, const Layers& t) const;
  // Returns the input of sublayer `index` of this segment.
  ConstAnyMatrix BranchInput(size_t index, const Layers& t) const;
  // Returns the tensors for the backward of branch `index`.
  PartTensors BranchTensors(const SublayerContext& context, size_t index, const Layers& t) const;
  // Returns the gradient of the current branch's output, at the start of `pending`.
  AnyMatrix BranchGradient(const Layers& t) const { return {t.pending, t.d_y.rows, d_model_, compute_storage_}; }
  // Return `rows` rows at an offset into `saved`: in the residual stream's type, and in the compute type.
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
  SavedTensors<std::byte> kept_{nullptr}, input_{nullptr};  // compute sizes only: of `saved` and of saved_input
  std::optional<LayerCombination> combination_;
  int64_t combination_saved_ = 0, combined_ = 0;  // the combination's saved tensors in saved_input; its result
  std::vector<std::unique_ptr<Branch>> branches_;
  std::vector<SavedBytes> branch_saved_;  // offsets of each branch's saved tensors
  int64_t branch_pending_ = 0;            // offset of the branch's pending tensors
  std::vector<Joint> joints_;             // branches + 1
  std::vector<bool> skipped_from_;        // whether a later joint adds the sublayer's input
};

}  // namespace hadal
