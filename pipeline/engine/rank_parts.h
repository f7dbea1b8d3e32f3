// RankParts is everything one rank holds: its stage, the stage's state, its channels, tied tables and replica
// reduction, and a decoder where validations translate. All are reserved in one layout and bound to memory later.
//
// Two programs share the arena (runtime/arena.h). What steps, evaluations and the profile use, including gradients and
// the channels' buffers, is scratch; translating validation sentences overwrites it. Weights and moments are lasting,
// and so is the checkpoint buffer, which a file-writing thread reads during either program.
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "layers/chunk_part.h"
#include "layers/parameter_store.h"
#include "pipeline/decode/decoder_parts.h"
#include "pipeline/exchange/channel.h"
#include "pipeline/exchange/process_grid.h"
#include "pipeline/exchange/replica_reduction.h"
#include "pipeline/exchange/tied_tables.h"
#include "pipeline/layout/pipeline_layout.h"
#include "pipeline/stage/chunk.h"
#include "pipeline/stage/stage_state.h"
#include "runtime/arena.h"
#include "runtime/stream.h"
#include "runtime/trace.h"

namespace hadal {

// Stage owns the memory with which one rank computes its part of the model: parameters, gradients, the activations of
// its chunks, and scratch. It does not communicate. Adam's moments are in stage_state.h.
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

struct RankParts {
  // Reserves everything in `layout`; `hadal plan` needs no more. `plan` and `pipeline` (that of this rank's replica)
  // must outlive the object. `gap_bytes`: ArenaLayout's.
  RankParts(const ModelPlan& plan, const PipelineLayout& pipeline, int stage, const Stream& stream, Purpose purpose,
            int64_t gap_bytes = 0);
  // `transfers`: communicators for the memory that kernels use; `host`: for host memory. Both and `trace` must outlive
  // the object.
  // Errors: ResourceExhausted; those of Communicator::Reserve.
  absl::Status Bind(const Arena& arena, ProcessGrid& transfers, ProcessGrid& host, absl::Duration timeout,
                    TraceBuffer& trace);

  ArenaLayout layout;
  Stage stage;
  StageState state;
  Channels channels;
  TiedTables tied;
  ReplicaReduction reduction;
  std::optional<DecoderParts> decoder;  // for validations, if the plan has one
};

}  // namespace hadal
