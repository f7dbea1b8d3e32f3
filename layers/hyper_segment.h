// HyperSegment: consecutive residual sublayers of a stack with n > 1 residual streams (manifold-constrained
// hyper-connections, mHC, arXiv 2512.24880). What Segment (segment.h) is for one stream: a part with one backward step
// per sublayer, the unit of recomputation.
//
//   before the stack      X = n copies of x_0
//   sublayer              u = H_pre·X;  f = b·dropout(F(k·LN(u)) + bias);  X' = H_res·X + H_postᵀ·f
//   behind the stack      y = LN(mean of the residuals)
// The maps H depend on X (kernels/hyper_connection.h has them and the sources). Copies and mean as in Megatron-LM.
// Ours: each stack of an encoder-decoder has its own residuals, and cross-attention is a sublayer with maps like the
// others; one dropout mask for f, before H_postᵀ.
//
// Tensors: x and y are [n·R, d]: the residuals of a row side by side. Where the stack begins, x is [R, d]; where it
// ends, y.
// Backward is in place: d_y and d_x begin at one address with room for n·R rows. A decoder reads encoder_output.
// Memory traffic of a sublayer beside its branch, in rows of d, with n = 4: forward 18 for the residuals
// (kernels/hyper_connection.h), 2 for the norm, 3 for f; backward 39, 3 and 3. Each live micro-batch keeps n + 3 rows a
// sublayer beside the branch's tensors (X, u, LN(u), f), with recomputation n a segment.
// Storage: residuals, u, f, maps and their gradients are fp32, as the maps' weights; LN(u), the branch and y where the
// stack ends as products (ModelPlan::compute_storage).
// Pending: the gradient of the branch's output [R, d], that of the maps' product, then the branch's own.
// Numerics: the division of a model into segments does not change any bit.
// Thread safety: const after construction; one micro-batch at a time per workspace.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "layers/branch.h"
#include "layers/chunk_part.h"
#include "layers/model_plan.h"
#include "layers/saved_tensors.h"
#include "layers/sublayer_context.h"

namespace hadal {

class HyperSegment final : public ChunkPart {
 public:
  // Sublayers [first, last) of the plan.  REQUIRES: first < last; residual sublayers of a stack with several streams.
  HyperSegment(const ModelPlan& plan, int32_t first, int32_t last, const ActivationCapacity& capacity);

  int64_t saved_bytes() const override { return kept_.bytes() + input_.bytes(); }
  int64_t saved_input_bytes() const override { return input_.bytes(); }
  int32_t steps() const override { return static_cast<int32_t>(sublayers_.size()); }
  int64_t pending_bytes(int32_t step) const override {
    return pending_.bytes() + sublayers_[step].branch->PendingBytes(capacity_);
  }
  // Calls the context's progress callback after each sublayer.
  void Forward(const SublayerContext& context, const PartTensors& tensors) const override;
  void BackwardInput(const SublayerContext& context, const PartTensors& tensors, int32_t step) const override;
  void BackwardWeight(const SublayerContext& context, const PartTensors& tensors, int32_t step) const override;

 private:
  // Byte offsets: of `residuals`, `normed` and branch_saved.kept in `saved`, of all others in saved_input.
  struct Sublayer {
    std::unique_ptr<Branch> branch;
    int32_t weight = -1;      // parameter of the maps; their gates and bias follow
    int32_t norm_scale = -1;  // parameter; its shift follows
    int64_t residuals = -1;   // X; −1: the segment's input
    int64_t normed = 0, projected = 0, maps = 0, inverse_rms = 0, read = 0, mean = 0, rstd = 0, result = 0;
    SavedBytes branch_saved;
  };
  // saved_input is not null.
  struct Tensors : PartTensors {
    int64_t rows = 0;  // R
  };
  Tensors With(const SublayerContext& context, const PartTensors& tensors) const;
  // Stored as products are.
  AnyMatrix ProductAt(std::byte* saved, int64_t offset, int64_t rows) const {
    return {saved + offset, rows, d_model_, storage_};
  }
  Matrix At(std::byte* saved, int64_t offset, int64_t rows, int64_t columns) const {
    return {reinterpret_cast<float*>(saved + offset), rows, columns};
  }
  Vector VectorAt(std::byte* saved, int64_t offset, int64_t rows) const {
    return {reinterpret_cast<float*>(saved + offset), rows};
  }
  // The residuals in front of sublayer `index`.
  ConstMatrix ResidualsAt(size_t index, const Tensors& t) const;
  // Where sublayer `index` writes its streams.
  Matrix ResidualsBehind(size_t index, const Tensors& t) const;
  // The gradient of the residuals, in d_y's memory.
  Matrix ResidualsGradient(const Tensors& t) const { return {t.d_y.floats().data, t.rows, residuals_ * d_model_}; }
  AnyMatrix BranchGradient(const Tensors& t) const { return ProductAt(t.pending, 0, t.rows); }
  Matrix MapsGradient(const Tensors& t) const { return At(t.pending, maps_pending_, t.rows, maps_); }
  PartTensors BranchTensors(const SublayerContext& context, size_t index, const Tensors& t) const;
  void ForwardSublayer(const SublayerContext& context, size_t index, const Tensors& t) const;
  void ForwardEnd(const SublayerContext& context, const Tensors& t) const;
  void BackwardEnd(const SublayerContext& context, const Tensors& t) const;
  // f of sublayer `index`, and from its gradient that of the branch's output.
  void ForwardResult(const SublayerContext& context, size_t index, const Tensors& t, ConstAnyMatrix branch) const;
  void BackwardResult(const SublayerContext& context, size_t index, const Tensors& t, Matrix d_result) const;

  int32_t first_;
  ActivationCapacity capacity_;
  Stack stack_;
  Storage storage_;
  int64_t d_model_, residuals_, maps_;
  double dropout_;
  bool begins_, ends_;               // whether the stack does
  int32_t closing_norm_scale_ = -1;  // parameter; its shift follows
  int64_t last_residuals_ = 0, mean_of_residuals_ = 0, closing_mean_ = 0,
          closing_rstd_ = 0;  // in saved_input, if ends_
  std::vector<Sublayer> sublayers_;
  SavedTensors<std::byte> kept_{nullptr}, input_{nullptr}, pending_{nullptr};  // compute sizes only
  int64_t maps_pending_ = 0;
};

}  // namespace hadal
