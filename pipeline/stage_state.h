// The state of one stage's parameters on one rank, slice by slice: weights and gradients, and Adam's moments where they
// are kept.
//
// Sharded (ZeRO-1, Rajbhandari et al. 2020, arXiv 1910.02054): a replica keeps the moments of the slices it owns
// (slice_ownership.h), 8 bytes an element, and of weights that products read rounded the fp32 masters, 4 bytes
// (layers/parameter_store.h); otherwise every replica keeps all. Gradients, and weights as kernels read them, are whole
// on every replica:
//
//   bytes an element, R replicas      fp32 run     bf16 run, read by products   bf16 run, read by other kernels
//   not sharded                       16           2 + 4 + 12 = 18              16
//   sharded                           8 + 8/R      2 + 4 + 12/R                 8 + 8/R
//
// Norms, updates, reductions and checkpoints all walk this one list.
// Thread safety: read-only after Bind; the buffers are the caller's to share.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "layers/parameter_store.h"
#include "layers/purpose.h"
#include "pipeline/pipeline_plan.h"
#include "runtime/arena.h"
#include "runtime/tensor.h"

namespace hadal {

struct StateSlice {
  int32_t parameter = 0;
  int64_t slice = 0;
  int owner = 0;  // replica
  int64_t elements = 0;
  Vector weight;               // empty where another replica keeps it
  VectorOf<BFloat16> rounded;  // the weight as products read it; empty where kernels read the weight
  Vector gradient;             // of a tied table: the first use's, which TiedTables::ReduceGradients makes the sum
  Vector first_moment, second_moment;  // empty where another replica keeps them

  bool is_rounded() const { return !rounded.empty(); }
  // The weight as kernels read it.  [1, elements]
  AnyMatrix as_read() const {
    return is_rounded() ? AnyMatrix(MatrixOf<BFloat16>(rounded.data, 1, elements)) : Matrix(weight.data, 1, elements);
  }
};

class StageState {
 public:
  // Reserves the moments.  For inference there are neither gradients nor moments.
  StageState(const ModelPlan& plan, const PipelinePlan& pipeline, int stage, Purpose purpose, ArenaLayout& layout);
  // `parameters`: the stage's, bound.
  void Bind(const Arena& arena, const ParameterStore& parameters);

  const ModelPlan& plan() const { return plan_; }
  // Every slice whose first use is on this stage, ascending by (parameter, slice).
  std::span<const StateSlice> slices() const { return slices_; }
  // Those that this replica owns.
  std::span<const StateSlice> owned() const { return owned_; }
  // Those that this replica updates, because it has their moments: the owned ones when sharded, else all.
  std::span<const StateSlice> updated() const { return sharded_ ? owned_ : slices_; }
  bool sharded() const { return sharded_; }
  // Whether replicas keep masters for each other, so that a load gives each its part and the rounded weights are to be
  // spread.
  bool masters_are_spread() const { return sharded_ && plan_.compute_storage == Storage::kBFloat16; }
  // Room for a part of the owned slices' weights and moments, while they are being saved
  // (checkpoint/background_file.h): no more than they take, and no more than PipelinePlan::save_buffer_bytes.  [floats]
  // In the host's memory.
  Vector save_buffer() const { return save_buffer_; }
  // Where the slices lie; null: in the host's memory.
  Device* device() const { return device_; }
  // Adam's two moments on this rank.
  int64_t moment_bytes() const { return 2 * moment_floats_ * int64_t{sizeof(float)}; }

 private:
  void ListOwned();

  const ModelPlan& plan_;
  Purpose purpose_;
  bool sharded_;
  int replica_;
  std::vector<StateSlice> slices_;
  std::vector<StateSlice> owned_;       // those of slices_
  std::vector<int64_t> moment_places_;  // [slices_] −1: another replica keeps them
  int64_t moment_floats_ = 0;           // of one moment
  int64_t buffer_floats_ = 0;
  ArenaSlice first_moment_slice_, second_moment_slice_, buffer_slice_;
  Vector save_buffer_;
  Device* device_ = nullptr;
};

}  // namespace hadal
