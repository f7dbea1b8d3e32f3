// ParameterStore lays out and provides the weights and gradients of one rank.
//
// A parameter belongs to one sublayer and is stored on that sublayer's rank. Several sublayers on several ranks may use
// one table (embeddings, output projection); each of these ranks has one copy of the weight. Every *use* has its own
// gradient buffer, in every layout; pipeline/exchange/tied_tables.h adds them once per step, in the order of the uses.
// Parameters of a sublayer are contiguous in plan order, so q, k and v are one matrix.
//
// If products read bf16 (ModelPlan::read_storage), every rank that uses a weight has a rounded copy of it. Its fp32
// values are the *master*, which Adam updates and checkpoints store. A rank has masters only for the slices that it
// updates (ZeRO-1), and none for tables that belong to another stage. Parameters that no product reads are fp32 on
// every rank.
//
//   if products read fp32   weights  w w w …                              all parameters
//   if products read bf16   rounded  r r r … | tables of other stages     parameters that products read
//                           masters      m m …  m m …                     the slices of these that the rank updates
//                           weights  w w w …                              all other parameters, fp32
//   gradients, fp32                                                       of the rounded parameters, then of the others
//
// Adam writes master and rounded copy in one pass. Other code that writes masters (initialisation, a load) must call
// RoundMasters.
// Thread safety: read-only after Bind; callers must not write to a buffer concurrently.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "layers/model_plan.h"
#include "runtime/arena.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

// What a rank reserves memory for.
enum class Purpose {
  kTraining,   // also gradients, moments and kept activations
  kInference,  // weights and the buffers of a forward pass
};

// Returns the offset at which a sublayer's weights begin after `elements` elements of earlier sublayers: a multiple of
// 8, so 16-byte aligned in fp32 and in bf16. Otherwise learned scalars of earlier sublayers would shift the weights;
// the bits of products depend on the alignment and must not depend on the sublayer at which a stage begins.
constexpr int64_t AlignedSublayer(int64_t elements) { return (elements + 7) / 8 * 8; }

// Returns slice `slice` of a parameter's values: kSliceElements consecutive elements, fewer in the last slice.
template <typename T>
VectorOf<T> SliceOf(VectorOf<T> values, int64_t slice) {
  const int64_t first = slice * kSliceElements;
  return {values.data + first, std::min(kSliceElements, values.size - first)};
}

// Consecutive slices in the order of (parameter, slice): [begin, end).
struct SliceRange {
  using SliceId = std::pair<int32_t, int64_t>;
  SliceId begin = {0, 0};
  SliceId end = {std::numeric_limits<int32_t>::max(), 0};

  bool Holds(int32_t parameter, int64_t slice) const {
    const SliceId slice_id(parameter, slice);
    return begin <= slice_id && slice_id < end;
  }
  bool EndsBefore(int32_t parameter, int64_t slice) const { return end <= SliceId(parameter, slice); }
};

class ParameterStore {
 public:
  // Reserves memory for the sublayers of this rank, which must be ascending. `plan` must outlive the store. For
  // training: also gradients, and masters only of the slices in `updated`, which must be ascending. For inference: all
  // masters.
  ParameterStore(const ModelPlan& plan, const std::vector<int32_t>& sublayers, Purpose purpose, ArenaLayout& layout,
                 const std::vector<SliceRange>& updated = {SliceRange()});

  // Sets the addresses. Must be called once.
  void Bind(const Arena& arena) { hadal::Bind(arena, rounded_, masters_, weights_, gradients_); }

  // Returns the parameters whose first use is on this stage, so that this stage stores their state; ascending.
  const std::vector<int32_t>& owned() const { return owned_; }
  bool Holds(int32_t parameter) const { return weight_offset_[parameter] >= 0; }

  // The fp32 weight of a parameter: [rows, columns], or [rows] for vectors. REQUIRES: all its fp32 values are on this
  // rank, not packed (aborts otherwise).
  Matrix Weight(int32_t parameter) const { return FusedWeight(parameter, 1); }
  // As Weight, for a vector. Empty for −1, a parameter that the model lacks; so are biases and vectors of gradients.
  Vector WeightVector(int32_t parameter) const { return FusedWeightVector(parameter, 1); }
  // `count` consecutive parameters of equal width as one matrix [sum of rows, columns]; vectors as one vector.
  Matrix FusedWeight(int32_t first, int32_t count) const;
  Vector FusedWeightVector(int32_t first, int32_t count) const;
  // The fp32 values of a slice; empty if they are not on this rank.
  Vector WeightSlice(int32_t parameter, int64_t slice) const;

  // As FusedWeight, in the type that products read: rounded to bf16, fp32, or in panels (after PackWeights).
  ConstAnyMatrix ProductWeight(int32_t first, int32_t count = 1) const;
  ConstAnyVector ProductBias(int32_t first, int32_t count = 1) const;
  // The rounded copy of a slice; empty if there is none.
  VectorOf<BFloat16> RoundedSlice(int32_t parameter, int64_t slice) const;
  // Returns a weight in the type that kernels read, [1, elements]: the bytes sent to ranks that do not update it.
  AnyMatrix AsRead(int32_t parameter) const;
  // Rearranges fp32 weights of attention and feed-forward for LinearForward (PackWeight), in sublayers whose weights
  // all have a multiple of kPackedRows rows. Only ProductWeight can then read these. REQUIRES: kInference; memory of
  // the CPU; called once.
  void PackWeights();
  // Rounds all masters on this rank, if there are any.
  void RoundMasters(const Stream& stream) const;

  // The fp32 gradient of a parameter that only its own sublayer uses: not of a table (TableGradient).
  Matrix Gradient(int32_t parameter) const { return View(gradients_, gradient_offset_[parameter], parameter); }
  Vector GradientVector(int32_t parameter) const { return FusedGradientVector(parameter, 1); }
  Matrix FusedGradient(int32_t first, int32_t count) const {
    return Fused(gradients_, gradient_offset_[first], first, count);
  }
  Vector FusedGradientVector(int32_t first, int32_t count) const;
  // The gradient [rows, columns] of one use of a table, by `sublayer` (an embedding or the head) on this rank.
  // `parameter`: the table; by default the sublayer's first or only one.
  Matrix TableGradient(int32_t sublayer, int32_t parameter) const;
  Matrix TableGradient(int32_t sublayer) const { return TableGradient(sublayer, plan_.sublayers[sublayer].table); }

  // Where gradients lie in AllGradients: those of a sublayer's own parameters, or of its use of one table.
  struct GradientRange {
    int32_t sublayer = 0, table = -1;  // table: the parameter; −1: the sublayer's own
    int64_t begin = 0, elements = 0;
    int64_t tied_offset = -1;  // if other sublayers use the table, too: offset among this rank's tied uses; else −1
  };
  // Of the parameters that kernels read as `storage`, ascending.
  const std::vector<GradientRange>& gradient_ranges(Storage storage) const {
    return gradient_ranges_[storage == Storage::kBFloat16 ? 0 : 1];
  }
  const GradientRange& TableRange(int32_t sublayer, int32_t parameter) const;
  int64_t tied_floats() const { return tied_floats_; }  // elements of all ranges with a tied_offset

  // All gradients of this rank as one range. Zeroed at the start of a step; scratch after the step (runtime/arena.h).
  Vector AllGradients() const { return {gradients_, gradient_floats_}; }

  const ModelPlan& plan() const { return plan_; }

 private:
  // Assigns offsets to the weights and gradients of the parameters that kernels read as `storage`. Returns the number
  // of elements of these weights, gaps for alignment included.
  int64_t Place(const std::vector<int32_t>& sublayers, Storage storage);
  // Reserves fp32 masters for the rounded elements [begin, end), after the masters reserved so far.
  void AddMasters(int64_t begin, int64_t end);
  void PlaceMasters(const std::vector<SliceRange>& updated);
  bool IsRounded(int32_t parameter) const { return plan_.read_storage(parameter) == Storage::kBFloat16; }
  // The fp32 values of `elements` elements of a parameter, starting at `first`; null if they are not on this rank.
  float* Floats(int32_t parameter, int64_t first, int64_t elements) const;
  Matrix View(float* base, int64_t offset, int32_t parameter) const;
  Matrix Fused(float* base, int64_t offset, int32_t first, int32_t count) const;

  const ModelPlan& plan_;
  std::vector<int32_t> owned_;
  std::vector<bool> packed_;  // for each parameter
  // For each parameter the offset in elements of its weight (rounded or fp32) and of its gradient; -1: not on this
  // rank.
  std::vector<int64_t> weight_offset_, gradient_offset_;
  std::vector<GradientRange> gradient_ranges_[2];  // bf16, fp32

  int64_t rounded_elements_ = 0, weight_floats_ = 0, gradient_floats_ = 0, tied_floats_ = 0;
  // The masters of the rounded elements [begin, end) start at `offset` of the masters; 16-byte aligned if the rounded
  // elements are.
  struct MasterRun {
    int64_t begin = 0, end = 0, offset = 0;
  };
  std::vector<MasterRun> master_runs_;  // ascending
  int64_t master_floats_ = 0;
  ArenaBuffer<BFloat16> rounded_;
  ArenaBuffer<float> masters_, weights_, gradients_;
};

}  // namespace hadal
