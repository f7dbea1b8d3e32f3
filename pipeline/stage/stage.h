// Stage owns the memory with which one rank computes its part of the model: parameters, gradients, the activations of
// its chunks, and scratch. It does not communicate. Adam's moments are in stage_state.h; rank_parts.h combines both.
//
// The constructor reserves memory in an ArenaLayout, which suffices for `hadal plan`; Bind later attaches the memory.
// Thread safety: one thread.
#pragma once

#include <memory>
#include <vector>

#include "layers/parameter_store.h"
#include "layers/purpose.h"
#include "layers/sublayer_context.h"
#include "pipeline/layout/pipeline_layout.h"
#include "pipeline/stage/chunk.h"
#include "runtime/arena.h"
#include "runtime/stream.h"

namespace hadal {

class Stage {
 public:
  // `plan` and `pipeline` must outlive the stage. A stage for inference has no gradients and keeps no activations.
  Stage(const ModelPlan& plan, const PipelineLayout& pipeline, int rank, const Stream& stream, Purpose purpose,
        ArenaLayout& layout);
  void Bind(const Arena& arena);

  const ModelPlan& plan() const { return plan_; }
  const Stream& stream() const { return stream_; }
  const ParameterStore& parameters() const { return parameters_; }
  Chunk& chunk(int index) { return *chunks_[index]; }
  int chunks() const { return static_cast<int>(chunks_.size()); }

  // Approximate device memory of the chunks' CUDA graphs.
  int64_t graph_bytes() const;

  // Returns the context with which a chunk of this stage computes `batch`.
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
  static std::vector<int32_t> Sublayers(const PipelineLayout& pipeline, int rank);

  const ModelPlan& plan_;
  Stream stream_;
  ParameterStore parameters_;
  Workspace workspace_;
  SharedActivations shared_;
  std::vector<std::unique_ptr<Chunk>> chunks_;
};

}  // namespace hadal
