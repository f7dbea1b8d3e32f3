// LayerCombination computes the input of a layer as a learned linear combination of the outputs of all earlier layers,
// not only of the last one (DLCL, Wang et al. 2019):
//
//   y_0 is the embedding, y_k the output of layer k = 1 … n of a stack; W[l,k] are the weights, l = 0 … n, k ≤ l
//   pre-norm    z_0 = y_0, z_k = LN_k(y_k); layer l + 1 reads Σ_{k≤l} W[l,k]·z_k;
//               the stack ends with LN(Σ_{k≤n} W[n,k]·z_k)
//   post-norm   z_k = y_k; layer l + 1 reads LN_l(Σ_{k≤l} W[l,k]·z_k), without the norm for l = 0;
//               the stack ends with row n and LN_n
//   no norm     as post-norm, without LN_l
// W[l,k] starts from 1/(l + 1). Row l belongs to the layer that reads it, row n to the stack's last sublayer. A norm
// after a sum belongs to the same sublayer as the sum's row. LN_k of a pre-norm stack belongs to layer k; the kernel
// that ends the layer's last sublayer computes it (segment.cc).
//
// z_0 … z_l are the stack's *history* as layer l + 1 sees it: one matrix of l + 1 entries, stacked by rows. Several
// layers read the history; they add to its gradient in descending order.
// Shapes: history [(l + 1)·R, d], sum [R, d]; R the rows of the stack. Storage: the history as the stack's residual
// stream, its gradient in fp32, because several layers add to it.
// The combination after the stack is a ChunkPart of its own (chunk_part.h): x is the history, y the sum. Segments
// contain the other combinations and call Combine and BackwardInput.
// Thread safety: const after construction.
#pragma once

#include <cstdint>

#include "layers/branch_parts.h"
#include "layers/chunk_part.h"
#include "layers/model_plan.h"

namespace hadal {

class LayerCombination final : public ChunkPart {
 public:
  // The combination before the layer that starts with `sublayer`; if `sublayer` is its stack's last, the combination
  // after the stack. `rows`: the capacity. REQUIRES: plan.Combines(the stack).
  LayerCombination(const ModelPlan& plan, int32_t sublayer, int64_t rows);

  int64_t entries() const { return entries_; }  // l + 1
  int64_t saved_bytes() const override { return Views(nullptr, rows_).bytes; }

  // y (=) [R, d]: the sum, normed if there is a norm; stored as the residual stream, or after the stack in the type
  // that products read. May not alias the history. `saved`: saved_bytes() bytes for the backward pass.
  void Combine(const Stream& stream, const ParameterStore& parameters, ConstAnyMatrix history, std::byte* saved,
               AnyMatrix y) const;
  void Forward(const SublayerContext& context, const PartTensors& tensors) const override {
    Combine(context.stream, context.parameters, tensors.x, tensors.saved, tensors.y);
  }
  // d_y is overwritten. Adds to d_x, the history's gradient, and to parameter gradients.
  void BackwardInput(const SublayerContext& context, const PartTensors& tensors, int32_t step) const override;

 private:
  // What Forward saves if there is a norm.
  struct Saved {
    AnyMatrix sum;
    float* statistics = nullptr;
    int64_t bytes = 0;
  };
  Saved Views(std::byte* saved, int64_t rows) const;

  int32_t weights_;  // the parameter: row l of W
  PlainNorm norm_;   // of the sum
  int64_t entries_, rows_, d_model_;
  Storage residual_storage_;
};

}  // namespace hadal
