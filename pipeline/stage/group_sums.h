// GroupSums adds the gradients of a replica's groups of micro-batches in the order of pipeline/layout/sum_tree.h.
//
// Backward adds to ParameterStore's gradients, the accumulator. At the end of a group they move to a kept sum; after
// the replica's last group the accumulator holds the sum of all its groups. With one group a replica nothing is done.
// Chunks end a group at different times, so a group ends for a range of sublayers. The output head's gradients are
// complete with the forward of its micro-batch, the others with the backward.
// Gradients of tied tables are first summed over their uses, group by group (exchange/tied_tables.h): each use keeps
// those of every group until the end of the step.
// Memory: a place, as large as the gradients, for each sum that GroupEnds keeps at a time; and for each use of a tied
// table its gradient in every group but the last.
// Threads: one; sums use the stream's. On a device everything is enqueued on the main queue.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "layers/parameter_store.h"
#include "pipeline/layout/pipeline_layout.h"
#include "pipeline/layout/sum_tree.h"
#include "runtime/arena.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

class GroupSums {
 public:
  // `parameters` must outlive the object. For inference it takes no memory.
  GroupSums(const PipelineLayout& pipeline, const ParameterStore& parameters, Purpose purpose, ArenaLayout& layout);
  void Bind(const Arena& arena) { sums_ = arena.Get<float>(slice_); }

  // The ends of the replica's groups (GroupEnds).
  std::span<const GroupEnd> ends() const { return ends_; }
  // Starts a step.
  void Begin() { complete_ = parameters_.plan().output_head(); }
  // Declares that the gradients of sublayers [first, last) are complete for the replica's micro-batches up to this one.
  void End(const Stream& stream, int micro_batch, int32_t first, int32_t last) const;
  // As End for the replica's last micro-batch, whose backward ends part by part: declares the sublayers from `first` to
  // the `first` of the call before (exclusive); in the first call of a step, to the output head, which End declares.
  void Complete(const Stream& stream, int32_t first);
  // The gradient of a use of a tied table for each of ends().
  std::vector<Vector> OfTable(int32_t sublayer, int32_t parameter) const;

 private:
  // Where the gradient of a tied table's use is kept for a group but the last.
  float* Kept(int64_t group, const ParameterStore::GradientRange& range) const;

  const ParameterStore& parameters_;
  std::vector<GroupEnd> ends_;
  int64_t places_ = 0;
  ArenaSlice slice_;
  float* sums_ = nullptr;  // [places_, gradients], then [groups − 1 − places_, uses of tied tables]
  int32_t complete_ = 0;   // the `first` of the last Complete
};

}  // namespace hadal
