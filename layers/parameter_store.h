// The parameters that live on one rank: where each one's weight and gradient are.
//
// A parameter belongs to the sublayer that owns it and lies on that sublayer's rank. Tables (embeddings, output
// projection) may be used by several sublayers on several ranks: each rank that uses one holds one copy of its weight,
// and every *use* has its own gradient buffer, in every layout; pipeline/tied_tables.h sums them once a step in the
// order of the uses. Within a sublayer parameters lie back to back in plan order, so that q, k and v are one matrix.
//
// Where products read bf16 (ModelPlan::read_storage) a weight lies here rounded, and its fp32 values, the *master* that
// Adam updates and a checkpoint holds, only where they are updated: of each stage's slices those that this rank updates
// (ZeRO-1), of another stage's table none. What other kernels read stays fp32 on every rank.
//
//   fp32                        weights  w w w …
//   bf16                        rounded  r r r … | tables of other stages      parameters that products read
//                               masters      m m …  m m …                      of runs of them, in their order
//                               weights  w w w …                               all others
//   gradients, whole, fp32:     of the rounded ones, then of the others
//
// Adam writes master and rounded copy in one trip; whoever else writes masters (initialisation, a load) has them
// rounded again. Thread safety: read-only after Bind; the buffers themselves are the caller's to share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "layers/model_plan.h"
#include "layers/purpose.h"
#include "runtime/arena.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

// A sublayer's weights begin here, not at `elements`, so that they are on 16 bytes in fp32 and in bf16, wherever a
// stage begins: products and kernels choose by alignment, and the bits must not depend on the cut. (Learned scalars of
// sublayers before would shift them.)
constexpr int64_t AlignedSublayer(int64_t elements) { return (elements + 7) / 8 * 8; }

// Slice `slice` of a parameter's flat values.
template <typename T>
VectorOf<T> SliceOf(VectorOf<T> values, int64_t slice) {
  const int64_t first = slice * kSliceElements;
  return {values.data + first, std::min(kSliceElements, values.size - first)};
}

// Consecutive slices, by (parameter, slice): those from `begin` on, `end` left out.
struct SliceRange {
  using Place = std::pair<int32_t, int64_t>;
  Place begin = {0, 0};
  Place end = {std::numeric_limits<int32_t>::max(), 0};

  bool Holds(int32_t parameter, int64_t slice) const {
    const Place place(parameter, slice);
    return begin <= place && place < end;
  }
  bool EndsBefore(int32_t parameter, int64_t slice) const { return end <= Place(parameter, slice); }
};

class ParameterStore {
 public:
  // Reserves room for the sublayers of this rank, given in ascending order. `plan` must outlive the store.
  // For training: gradients as well, and of masters only those of `updated`, which ascend. For inference: all masters.
  ParameterStore(const ModelPlan& plan, const std::vector<int32_t>& sublayers, Purpose purpose, ArenaLayout& layout,
                 const std::vector<SliceRange>& updated = {SliceRange()});

  // Fixes the addresses. Call once.
  void Bind(const Arena& arena);

  // Parameters whose state belongs to this stage (their first use is here), ascending.
  const std::vector<int32_t>& owned() const { return owned_; }
  bool Holds(int32_t parameter) const { return weight_offset_[parameter] >= 0; }

  // fp32 weight of a parameter, as stored: [rows, columns], or [rows] for vectors.  REQUIRES: all of it lies here
  // (aborts otherwise).
  Matrix Weight(int32_t parameter) const { return FusedWeight(parameter, 1); }
  // Of a parameter that the method does not have, −1: empty. So also the other vectors below.
  Vector WeightVector(int32_t parameter) const { return FusedWeightVector(parameter, 1); }
  // `count` consecutive parameters of equal width as one matrix [sum of rows, columns], or of vectors as one vector.
  Matrix FusedWeight(int32_t first, int32_t count) const;
  Vector FusedWeightVector(int32_t first, int32_t count) const;
  // fp32 values of a slice; empty where they do not lie here.
  Vector WeightSlice(int32_t parameter, int64_t slice) const;

  // The same as products read them: rounded, or themselves.
  ConstAnyMatrix ProductWeight(int32_t first, int32_t count = 1) const;
  ConstAnyVector ProductBias(int32_t first, int32_t count = 1) const;
  // The rounded copy of a slice; empty where there is none.
  VectorOf<BFloat16> RoundedSlice(int32_t parameter, int64_t slice) const;
  // A weight as kernels read it, [1, elements]: what those ranks have to be sent that do not update it.
  AnyMatrix AsRead(int32_t parameter) const;
  // Rounds all masters that lie here; nothing where there are none.
  void RoundMasters(const Stream& stream) const;

  // Gradient of a parameter that only its owner uses.
  Matrix Gradient(int32_t parameter) const { return View(gradients_, gradient_offset_[parameter], parameter); }
  Vector GradientVector(int32_t parameter) const { return FusedGradientVector(parameter, 1); }
  Matrix FusedGradient(int32_t first, int32_t count) const {
    return Fused(gradients_, gradient_offset_[first], first, count);
  }
  Vector FusedGradientVector(int32_t first, int32_t count) const;
  // Gradient of a table's use by `sublayer` (an embedding or the head) on this rank.  [rows, columns]
  Matrix TableGradient(int32_t sublayer) const;

  // All gradients of this rank as one range: zeroed at the start of a step, behind which they are scratch
  // (runtime/arena.h).
  Vector AllGradients() const { return {gradients_, gradient_floats_}; }

  const ModelPlan& plan() const { return plan_; }

 private:
  // Gives the parameters that kernels read as `storage` their places; how many elements their weights take.
  int64_t Place(const std::vector<int32_t>& sublayers, Storage storage);
  // Gives the rounded elements [begin, end) masters, behind those that have some.
  void AddMasters(int64_t begin, int64_t end);
  void PlaceMasters(const std::vector<SliceRange>& updated);
  bool IsRounded(int32_t parameter) const { return plan_.read_storage(parameter) == Storage::kBFloat16; }
  // Where the fp32 values of `elements` from `first` of a parameter on are; null: not here.
  float* Floats(int32_t parameter, int64_t first, int64_t elements) const;
  Matrix View(float* base, int64_t offset, int32_t parameter) const;
  Matrix Fused(float* base, int64_t offset, int32_t first, int32_t count) const;

  const ModelPlan& plan_;
  std::vector<int32_t> owned_;
  // By parameter, in elements, of rounded or of fp32 weights, and of gradients; -1 where not held here.
  std::vector<int64_t> weight_offset_, gradient_offset_;
  // By use: sublayer and offset.
  struct TableUse {
    int32_t sublayer = 0;
    int64_t gradient_offset = 0;
  };
  std::vector<TableUse> table_uses_;

  int64_t rounded_elements_ = 0, weight_floats_ = 0, gradient_floats_ = 0;
  // The rounded elements [begin, end) have masters, from `place` on: on 16 bytes where they are.
  struct MasterRun {
    int64_t begin = 0, end = 0, place = 0;
  };
  std::vector<MasterRun> master_runs_;  // ascending
  int64_t master_floats_ = 0;
  ArenaSlice rounded_slice_, master_slice_, weight_slice_, gradient_slice_;
  BFloat16* rounded_ = nullptr;
  float* masters_ = nullptr;
  float* weights_ = nullptr;
  float* gradients_ = nullptr;
};

}  // namespace hadal
