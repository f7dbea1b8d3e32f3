// What one rank computes with: its parameters and their gradients, its chunks' activations, its scratch. No
// communication. (Moments are in stage_state.h, all of it together in rank_parts.h.)
//
// A stage is laid out first (the constructor adds up an ArenaLayout, which is all `hadal plan` needs) and bound to
// memory later. Thread safety: one thread.
#pragma once

#include <memory>
#include <vector>

#include "layers/parameter_store.h"
#include "layers/purpose.h"
#include "layers/sublayer_context.h"
#include "pipeline/chunk.h"
#include "pipeline/pipeline_plan.h"
#include "runtime/arena.h"
#include "runtime/stream.h"

namespace hadal {

class Stage {
 public:
  // `plan` and `pipeline` must outlive the stage. For inference: no gradients and no kept activations.
  Stage(const ModelPlan& plan, const PipelinePlan& pipeline, int rank, const Stream& stream, Purpose purpose,
        ArenaLayout& layout);
  void Bind(const Arena& arena);

  const ModelPlan& plan() const { return plan_; }
  const Stream& stream() const { return stream_; }
  const ParameterStore& parameters() const { return parameters_; }
  Chunk& chunk(int index) { return *chunks_[index]; }
  int chunks() const { return static_cast<int>(chunks_.size()); }

  // What graphs have taken of the device's memory, about.
  int64_t graph_bytes() const;

  // The context in which `batch` flows through a chunk of this stage.
  SublayerContext Context(const PackedBatch& batch, const StepScalars& scalars,
                          const std::function<void()>* progress) const {
    return {.stream = stream_,
            .parameters = parameters_,
            .workspace = workspace_,
            .batch = batch,
            .scalars = scalars,
            .progress = progress};
  }

 private:
  static std::vector<int32_t> Sublayers(const PipelinePlan& pipeline, int rank);

  const ModelPlan& plan_;
  Stream stream_;
  ParameterStore parameters_;
  Workspace workspace_;
  SharedActivations shared_;
  std::vector<std::unique_ptr<Chunk>> chunks_;
};

}  // namespace hadal
