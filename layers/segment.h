// A run of consecutive residual sublayers of one stack: the unit whose activations recomputation drops and
// computes again.
//
// Between sublayers are *joints*. Joint j (j ≥ 1) ends sublayer j−1: one kernel (kernels/residual_norm.h) computes
//   s = r·x + b·dropout(y + bias)
// and the norm that follows. Post-norm: that is the norm of sublayer j−1. Pre-norm: that is the norm of sublayer j.
// Joint 0 exists for pre-norm only: the first sublayer's norm alone, with the same bits as the fused norm. A pre-norm
// segment ends with the plain sum, or, at the end of a stack, with the closing norm.
//
//   post-norm:  x ─ F_0 ─ joint 1 (LN_0) ─ F_1 ─ joint 2 (LN_1) → out = normed
//   pre-norm:   x ─ joint 0 (LN_0) ─ F_0 ─ joint 1 (sum, LN_1) ─ F_1 ─ joint 2 (sum[, closing LN]) → sum or normed
//   no norm:    x ─ F_0 ─ joint 1 (sum) ─ F_1 ─ joint 2 (sum) → out = sum
// Where layers combine the outputs of all layers before them (layer_combination.h), a segment is one layer. Then x is
// the stack's history [l·R, d], joint 0 follows the combination, and a pre-norm layer's last joint ends with the norm
// of the layer's output.
// A joint may also add the layer's input (skip_gain); the whole layer is then in one segment. After a stack without
// norms learned scalars may follow the last sum: out = g·(sum − b) (R-Fixup).
//
// Shapes: x, out and gradients [R, d], R the rows of the stack; a history has l·R rows.
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
#include "layers/saved_tensors.h"
#include "layers/sublayer_context.h"

namespace hadal {

class Segment {
 public:
  // Sublayers [first, last) of the plan.  REQUIRES: not empty, one stack, no embedding and no head.
  Segment(const ModelPlan& plan, int32_t first, int32_t last, const ActivationCapacity& capacity);

  // Bytes that Forward keeps for Backward at full capacity.
  int64_t saved_bytes() const { return saved_.bytes(); }
  // How `out` is stored: after a stack that does not combine its layers as products read it, else as the residual
  // stream.
  Storage output_storage() const { return output_storage_; }
  Stack stack() const { return stack_; }
  // Whether x is a history; entries() is its number of entries.
  bool combines() const { return combination_.has_value(); }
  int64_t entries() const { return combines() ? combination_->entries() : 1; }

  // out = the segment's output (=); `saved` keeps what Backward reads. `out` may not alias x.
  void Forward(const SublayerContext& context, ConstAnyMatrix x, std::byte* saved, AnyMatrix out) const;
  // On entry d_residual is the gradient of the output. On return it is the gradient of x, or, where x is a history, of
  // the combination; then the history's gradient is added to d_history [l·R, d], which is empty otherwise. d_residual
  // is stored as the residual stream. Also adds to parameter gradients and to context.d_encoder_output.
  void Backward(const SublayerContext& context, ConstAnyMatrix x, const std::byte* saved, AnyMatrix d_residual,
                Matrix d_history) const;

 private:
  // Offsets in bytes into `saved`. The tensors are [rows, d]; mean and rstd are [rows]. `sum` is stored as the residual
  // stream; `branch`, `normed` (in post-norm sublayers the residual stream) and `rounded` as products read and write
  // them.
  struct Joint {
    int32_t norm_scale = -1;  // parameter; its shift follows. -1: no norm
    bool output_is_normed = true;
    int64_t sum = 0, normed = 0, mean = 0, rstd = 0;
    int64_t rounded =
        -1;  // the residual stream as products read it; only where no norm follows and the two types differ
    int64_t branch = -1;     // the branch's output; kept only where its gain is learned
    int32_t skip_from = -1;  // the sublayer of this segment whose input is added as well; -1: none
    int32_t omega = -1;      // parameter; -1: none
    bool profiled = false;   // whether ResidualProfile sets omega
    int32_t closing_shift = -1, closing_scale = -1;  // parameters; -1: none
  };

  // x, or the result of the combination that Forward made of x: `rows` rows.
  ConstAnyMatrix Input(ConstAnyMatrix x, const std::byte* saved, int64_t rows) const;
  // Everything except the combination. x: the combination's result.
  void ForwardLayers(const SublayerContext& context, ConstAnyMatrix x, std::byte* saved, AnyMatrix out) const;
  void BackwardLayers(const SublayerContext& context, ConstAnyMatrix x, const std::byte* saved,
                      AnyMatrix d_residual) const;
  Joint MakeJoint(const ModelPlan& plan, size_t index);
  // Whether the norm that ends the segment writes another type than the output has: the norm of a pre-norm layer's
  // output, which goes into a history.
  bool NormedApart() const { return output_storage_ != compute_storage_; }
  // `x`: the segment's input.
  void ForwardJoint(const SublayerContext& context, size_t index, ConstAnyMatrix x, ConstAnyMatrix branch,
                    std::byte* saved, AnyMatrix out) const;
  void BackwardJoint(const SublayerContext& context, size_t index, ConstAnyMatrix x, const std::byte* saved,
                     ConstAnyMatrix d_normed, ConstAnyMatrix d_sum, AnyMatrix d_residual, AnyMatrix d_branch) const;
  // The sum of joint `index`; `out`: the segment's output.
  AnyMatrix SumOf(size_t index, std::byte* saved, AnyMatrix out) const;
  // The gradient of the last norm's output, as products store it; empty where no norm ends the segment.
  ConstAnyMatrix OutputGradient(const SublayerContext& context, AnyMatrix d_residual) const;
  // Backward of the closing scalars; changes d_residual in place.
  void BackwardClosing(const SublayerContext& context, const std::byte* saved, AnyMatrix d_residual) const;
  // Tells the observer what joint `index` has made. `out`: see Forward.
  void ObserveForward(const SublayerContext& context, size_t index, ConstAnyMatrix x, const std::byte* saved,
                      ConstAnyMatrix out) const;
  // Tells the observer the gradients around joint `index`, before and after its backward.
  void ObserveBackwardBefore(const SublayerContext& context, size_t index, ConstAnyMatrix d_normed,
                             ConstAnyMatrix d_residual) const;
  void ObserveBackwardAfter(const SublayerContext& context, size_t index, ConstAnyMatrix d_residual,
                            ConstAnyMatrix d_branch) const;
  // The residual stream after joint `index` (index 0: x).
  ConstAnyMatrix ResidualAfter(size_t index, ConstAnyMatrix x, const std::byte* saved) const;
  // What sublayer `index` of this segment reads.
  ConstAnyMatrix BranchInput(size_t index, ConstAnyMatrix x, const std::byte* saved) const;
  // Views of `rows` rows at an offset into `saved`: stored as the residual stream, or as products read and write.
  template <typename Byte>
  SavedMatrix<Byte> ResidualAt(Byte* saved, int64_t offset, int64_t rows) const {
    return {saved + offset, rows, d_model_, residual_storage_};
  }
  template <typename Byte>
  SavedMatrix<Byte> ProductAt(Byte* saved, int64_t offset, int64_t rows) const {
    return {saved + offset, rows, d_model_, compute_storage_};
  }

  int32_t first_, last_;
  Stack stack_;
  bool pre_norm_;
  int64_t d_model_;
  double dropout_;
  Storage compute_storage_, residual_storage_, output_storage_;
  SavedTensors<std::byte> saved_{nullptr};  // only measures
  std::optional<LayerCombination> combination_;
  int64_t combination_saved_ = 0, combined_ = 0;  // byte offsets of what the combination keeps, and of its result
  std::vector<std::unique_ptr<Branch>> branches_;
  std::vector<int64_t> branch_saved_;  // offset of each branch's saved tensors
  std::vector<Joint> joints_;          // branches + 1
  std::vector<bool> skipped_from_;     // whether a later joint adds the sublayer's input
};

}  // namespace hadal
