// What the kinds of segments (segment.cc, hyper_segment.cc, block_reading_segment.cc) share: the branches of
// consecutive residual sublayers of one stack, and the division of a micro-batch's memory.
//
// SegmentFrame: parts with one backward step per sublayer. A whole part is the unit of recomputation. A decoder reads
// encoder_output.
// ReadingSegment: those whose sublayers read their input u from several tensors: f = b·dropout(F(k·LN(u)) + bias), with
// the gains b and k of the plan (SublayerRecord).
// Pending: the gradient of the branch's output [R, d], what the subclass reserves, then the branch's own.
// Numerics: the division of a model into segments does not change any bit.
// Thread safety: const after construction; one micro-batch at a time per workspace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "layers/branch_parts.h"
#include "layers/chunk_part.h"
#include "layers/model_plan.h"

namespace hadal {

class SegmentFrame : public ChunkPart {
 public:
  int64_t saved_bytes() const override { return kept_.bytes() + input_.bytes(); }
  int64_t saved_input_bytes() const override { return input_.bytes(); }
  int32_t steps() const override { return static_cast<int32_t>(branches_.size()); }
  int64_t pending_bytes(int32_t step) const override {
    return pending_.bytes() + branches_[step].branch->PendingBytes(capacity_);
  }
  // Calls the context's progress callback at its end.
  void BackwardWeight(const SublayerContext& context, const PartTensors& tensors, int32_t step) const override;

 protected:
  struct PlacedBranch {
    std::unique_ptr<Branch> branch;
    SavedBytes saved;  // offsets of its tensors
  };
  // saved_input is not null.
  struct Tensors : PartTensors {
    int64_t rows = 0;  // R
  };

  // Sublayers [first, last) of the plan.  REQUIRES: first < last; residual sublayers of one stack.
  SegmentFrame(const ModelPlan& plan, int32_t first, int32_t last, const ActivationCapacity& capacity);

  virtual Tensors With(const SublayerContext& context, const PartTensors& tensors) const;
  // The input of branch `index`.
  virtual ConstAnyMatrix BranchInput(size_t index, const Tensors& t) const = 0;
  // What BackwardWeight computes beside the branch's gradients.
  virtual void BackwardWeightBeside(const SublayerContext& /*context*/, const Tensors& /*t*/, int32_t /*step*/) const {}

  int32_t SublayerAt(size_t index) const { return first_ + static_cast<int32_t>(index); }
  // Reserves [R, columns]; returns its offset.
  int64_t Reserve(SavedTensors& tensors, int64_t columns, Storage storage = Storage::kFloat32) const {
    return tensors.Reserve(capacity_.rows(stack_) * columns * BytesOf(storage));
  }
  Matrix FloatsAt(std::byte* saved, int64_t offset, int64_t rows, int64_t columns) const {
    return {reinterpret_cast<float*>(saved + offset), rows, columns};
  }
  // Stored as products are.
  AnyMatrix ProductAt(std::byte* saved, int64_t offset, int64_t rows) const {
    return {saved + offset, rows, d_model_, storage_};
  }
  AnyMatrix BranchGradient(const Tensors& t) const { return ProductAt(t.pending, 0, t.rows); }
  // The tensors of branch `index` but y. d_x is in the workspace.
  PartTensors BranchTensors(const SublayerContext& context, size_t index, const Tensors& t) const;
  // Sets what the kernel of the residual connection reads of branch `index`: its bias, gain and dropout; backward also
  // where the gradients of branch and bias go.
  template <typename Args>
  void SetBranch(const SublayerContext& context, size_t index, const Tensors& t, Args& args) const {
    const int32_t sublayer = SublayerAt(index), bias = branches_[index].branch->output_bias();
    args.bias = context.parameters.WeightVector(bias);
    args.branch_gain = BranchGain(context.plan().sublayers[sublayer], context.scalars.growth_update());
    args.device_branch_gain = context.DeviceBranchGain(sublayer);
    args.dropout = context.MakeDropout(dropout_, sublayer, RandomSite::kResidual);
    if constexpr (requires { args.d_branch; }) {
      args.d_branch = BranchGradient(t);
      args.d_bias = context.parameters.GradientVector(bias);
    }
  }

  const int32_t first_;
  const ActivationCapacity capacity_;
  const Stack stack_;
  const Storage storage_;
  const int64_t d_model_;
  const double dropout_;
  std::vector<PlacedBranch> branches_;
  SavedTensors kept_{nullptr}, input_{nullptr}, pending_{nullptr};  // compute sizes only; input_: of saved_input
};

class ReadingSegment : public SegmentFrame {
 protected:
  ReadingSegment(const ModelPlan& plan, int32_t first, int32_t last, const ActivationCapacity& capacity);

  ConstAnyMatrix BranchInput(size_t index, const Tensors& t) const override {
    return ProductAt(t.saved, norms_[index].normed, t.rows);
  }
  // sum (=): residual + f, or f alone if `residual` is empty.
  void ForwardBranch(const SublayerContext& context, size_t index, const Tensors& t, ConstMatrix u,
                     ConstMatrix residual, Matrix sum) const;
  // Reads d_sum, the gradient of `sum`, and computes du (=), the gradient of u through the branch alone. Then d_sum is
  // residual_gain times what it was: the gradient of `residual`. du may be the memory of d_sum, which is then lost.
  void BackwardBranch(const SublayerContext& context, size_t index, const Tensors& t, ConstMatrix u,
                      float residual_gain, Matrix d_sum, Matrix du) const;

 private:
  // `normed` is in `saved`, `statistics` [2·R] in saved_input. Without a norm LN(u) is u.
  struct PlacedNorm {
    PlainNorm norm;
    int64_t normed = 0, statistics = 0;
  };
  std::vector<PlacedNorm> norms_;
};

}  // namespace hadal
