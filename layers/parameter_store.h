// The parameters that live on one rank: where each one's weight and gradient are.
//
// A parameter belongs to the sublayer that owns it and lies on that sublayer's rank. Tables (embeddings, output
// projection) may be used by several sublayers on several ranks: each rank that uses one holds one copy of its weight,
// and every *use* has its own gradient buffer, in every layout; pipeline/tied_tables.h sums them once a step in the
// order of the uses. Where products read bf16 (ModelPlan::compute_storage) each weight lies here twice: the fp32 weight, under the
// checkpoint's name, which Adam updates, and rounded beside it, for products. Whoever else writes weights (a load, a broadcast, a gather)
// has them rounded again. Within a sublayer parameters lie back to back in plan order, so that q, k and v are one matrix.
// Thread safety: read-only after Build; the buffers themselves are the caller's to share.
#pragma once

#include <cstdint>
#include <vector>

#include "layers/model_plan.h"
#include "runtime/arena.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

// A sublayer's weights begin here, not at `elements`, so that they are on 16 bytes in fp32 and in bf16, wherever a stage begins: products
// and kernels choose by alignment, and the bits must not depend on the cut. (Learned scalars of sublayers before would shift them.)
constexpr int64_t AlignedSublayer(int64_t elements) { return (elements + 7) / 8 * 8; }

class ParameterStore {
 public:
  // Reserves room for the sublayers of this rank, given in ascending order. `plan` must outlive the store.
  // `training`: gradients as well.
  ParameterStore(const ModelPlan& plan, const std::vector<int32_t>& sublayers, bool training, ArenaLayout& layout);

  // Fixes the addresses. Call once.
  void Bind(const Arena& arena);

  // Parameters whose state belongs to this stage (their first use is here), ascending.
  const std::vector<int32_t>& owned() const { return owned_; }
  bool Holds(int32_t parameter) const { return weight_offset_[parameter] >= 0; }

  // Weight of a parameter held here, as stored: [rows, columns], or [rows] for vectors.
  Matrix Weight(int32_t parameter) const { return View(weights_, weight_offset_[parameter], parameter); }
  // Of a parameter that the method does not have, −1: empty. So also the other vectors below.
  Vector WeightVector(int32_t parameter) const {
    return parameter < 0 ? Vector() : Flat(weights_, weight_offset_[parameter], parameter);
  }
  // `count` consecutive parameters of equal width as one matrix [sum of rows, columns], or of vectors as one vector.
  Matrix FusedWeight(int32_t first, int32_t count) const {
    return Fused(weights_, weight_offset_[first], first, count);
  }
  Vector FusedWeightVector(int32_t first, int32_t count) const;

  // The same as products read them: rounded, or themselves.
  ConstAnyMatrix ProductWeight(int32_t first, int32_t count = 1) const;
  ConstAnyVector ProductBias(int32_t first, int32_t count = 1) const;
  // The rounded copy of `weight`, a part of the weights that lie here; empty where there is none.
  VectorOf<BFloat16> RoundedOf(ConstVector weight) const;
  // Rounds a part of the weights, or all, again; nothing where there is no rounded copy.
  void Round(const Stream& stream, ConstVector weight) const;
  void RoundAll(const Stream& stream) const { Round(stream, {weights_, weight_floats_}); }

  // Gradient of a parameter that only its owner uses.
  Matrix Gradient(int32_t parameter) const { return View(gradients_, gradient_offset_[parameter], parameter); }
  Vector GradientVector(int32_t parameter) const {
    return parameter < 0 ? Vector() : Flat(gradients_, gradient_offset_[parameter], parameter);
  }
  Matrix FusedGradient(int32_t first, int32_t count) const {
    return Fused(gradients_, gradient_offset_[first], first, count);
  }
  Vector FusedGradientVector(int32_t first, int32_t count) const;
  // Gradient of a table's use by `sublayer` (an embedding or the head) on this rank.  [rows, columns]
  Matrix TableGradient(int32_t sublayer) const;

  // All gradients of this rank as one range: zeroed at the start of a step.
  Vector AllGradients() const { return {gradients_, gradient_floats_}; }

  const ModelPlan& plan() const { return plan_; }

 private:
  Matrix View(float* base, int64_t offset, int32_t parameter) const;
  Vector Flat(float* base, int64_t offset, int32_t parameter) const;
  Matrix Fused(float* base, int64_t offset, int32_t first, int32_t count) const;

  const ModelPlan& plan_;
  std::vector<int32_t> owned_;
  // By parameter, in floats; -1 where not held here.
  std::vector<int64_t> weight_offset_, gradient_offset_;
  // By use: sublayer and offset.
  struct TableUse {
    int32_t sublayer = 0;
    int64_t gradient_offset = 0;
  };
  std::vector<TableUse> table_uses_;

  int64_t weight_floats_ = 0, gradient_floats_ = 0;
  ArenaSlice weight_slice_, rounded_slice_, gradient_slice_;
  float* weights_ = nullptr;
  BFloat16* rounded_ = nullptr;  // at the same offsets
  float* gradients_ = nullptr;
};

}  // namespace hadal
