// StageState is the state of one stage's parameters on one rank, slice by slice: weights, gradients, and the moments
// that this rank keeps: Adam's two, or for a matrix that Muon updates (ModelPlan::uses_muon) its momentum alone.
//
// Sharded (ZeRO-1, Rajbhandari et al. 2020, arXiv 1910.02054): each replica stores the moments of only the slices it
// owns (slice_ownership.h), 8 bytes per element. For weights that matrix products read in bf16, it also stores only
// its own slices' fp32 masters, 4 bytes per element (layers/parameter_store.h). Not sharded: every replica stores all.
// Every replica always stores all gradients (4 bytes per element) and all weights in the type that kernels read (4 or
// 2). With 8 bytes of moments and, for rounded weights, 4 of masters (a matrix that Muon updates has 4 bytes of
// moments: subtract 4, or 4/R if sharded):
//
//   bytes per element, R replicas     fp32 run     bf16 run, read by products   bf16 run, read by other kernels
//   not sharded                       16           2 + 4 + 12 = 18              16
//   sharded                           8 + 8/R      2 + 4 + 12/R                 8 + 8/R
//
// Norms, updates, reductions and checkpoints all iterate over the same list of slices.
// Thread safety: read-only after Bind; callers synchronise access to the buffers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "layers/parameter_store.h"
#include "pipeline/layout/pipeline_layout.h"
#include "runtime/arena.h"
#include "runtime/tensor.h"

namespace hadal {

struct StateSlice {
  int32_t parameter = 0;
  int64_t slice = 0;
  int owner = 0;  // replica
  int round = 0;  // the round in which the replicas exchange the slice (slice_ownership.h)
  int64_t elements = 0;
  Vector weight;               // fp32; empty if another replica keeps it
  VectorOf<BFloat16> rounded;  // the weight as products read it; empty if kernels read `weight`
  Vector gradient;             // of a tied table: that of its first use, to which ReduceGradients adds the others
  Vector first_moment;         // Adam's, or Muon's momentum; empty if another replica keeps it
  Vector second_moment;        // Adam's; empty if another replica keeps it, or Muon updates the slice

  bool is_rounded() const { return !rounded.empty(); }
  // The weight as kernels read it.  [1, elements]
  AnyMatrix as_read() const {
    return is_rounded() ? AnyMatrix(MatrixOf<BFloat16>(rounded.data, 1, elements)) : Matrix(weight.data, 1, elements);
  }
};

class StageState {
 public:
  // Reserves the moments, the save buffer, the staging memory and Muon's workspace; for inference nothing, and slices
  // have no gradients and no moments.
  StageState(const ModelPlan& plan, const PipelineLayout& pipeline, int stage, Purpose purpose, ArenaLayout& layout);
  // Sets the views of the slices and buffers. `parameters`: the stage's, already bound.
  void Bind(const Arena& arena, const ParameterStore& parameters);

  const ModelPlan& plan() const { return plan_; }
  // The slices of every parameter whose first use is on this stage, ascending by (parameter, slice).
  std::span<const StateSlice> slices() const { return slices_; }
  // The slices that this replica owns.
  std::span<const StateSlice> owned() const { return owned_; }
  // The slices that this replica updates, because it has their moments: the owned ones if sharded, else all.
  std::span<const StateSlice> updated() const { return sharded_ ? owned_ : slices_; }
  bool sharded() const { return sharded_; }
  // Whether each replica stores fp32 masters only of its own slices. After a load, the rounded weights must then be
  // gathered from all replicas.
  bool masters_are_spread() const { return sharded_ && plan_.compute_storage == Storage::kBFloat16; }
  // Host memory that holds owned slices' weights and moments while a checkpoint is written
  // (checkpoint/checkpoint_file.h): their total size, limited to PipelineLayout::save_buffer_bytes.  [floats]
  Vector save_buffer() const { return save_buffer_; }
  // On a device: pinned host memory for the largest owned slice's weights and moments, through which a checkpoint is
  // written (checkpoint/checkpoint_file.h). On the CPU: empty.  [floats]
  Vector save_staging() const { return save_staging_; }
  // The device that holds the slices; null: they are in host memory.
  Device* device() const { return device_; }
  // Bytes of the moments on this rank.
  int64_t moment_bytes() const { return (first_.end + second_.end) * int64_t{sizeof(float)}; }
  // Scratch for the largest matrix that this replica orthogonalises (kernels/orthogonalize.h); empty: none.  [floats]
  Vector orthogonal_workspace() const { return orthogonal_workspace_; }

 private:
  // The offsets of the first, or of the second, moments of all slices in this rank's buffer.
  struct MomentPlaces {
    std::vector<int64_t> offsets;  // [slices_] in floats; −1: another replica keeps the moment, or the slice has none
    int64_t end = 0;               // size of the buffer in floats
    Vector Of(float* moments, size_t slice, int64_t elements) const {
      return offsets[slice] < 0 ? Vector() : Vector(moments + offsets[slice], elements);
    }
  };
  // Places the moments of the slices for which kept(slice) is true.
  template <typename Kept>
  MomentPlaces PlaceMoments(const Kept& kept) const;
  void ListOwned();

  const ModelPlan& plan_;
  Purpose purpose_;
  bool sharded_;
  int replica_;
  std::vector<StateSlice> slices_;
  std::vector<StateSlice> owned_;  // the owned ones of slices_
  MomentPlaces first_, second_;
  int64_t buffer_floats_ = 0, staging_floats_ = 0, orthogonal_floats_ = 0;
  ArenaSlice first_moment_slice_, second_moment_slice_, buffer_slice_, staging_slice_, orthogonal_slice_;
  Vector save_buffer_, save_staging_, orthogonal_workspace_;
  Device* device_ = nullptr;
};

}  // namespace hadal
