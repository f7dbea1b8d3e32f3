// The engine runs a rank's part of the model: training steps, evaluations, and the profile from which Admin initialises
// its weights.
//
// It owns the rank's memory, one arena (RankParts). For each call it makes the rank's program, which is its list of
// instructions (schedule.h), and program_executor.h executes it.
// Threads: one thread per rank makes all calls. Blocking: all calls; when one returns, no transfer is under way.
// After an error the job can only end. If the error is this rank's own (say, a message of another step), the engine
// also closes its communicators, so that no receive can write into an arena that is freed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "layers/chunk_part.h"
#include "layers/parameter_store.h"
#include "pipeline/decode/decoder.h"
#include "pipeline/engine/current_instruction.h"
#include "pipeline/engine/program_executor.h"
#include "pipeline/engine/step_tail.h"
#include "pipeline/exchange/channel.h"
#include "pipeline/exchange/process_grid.h"
#include "pipeline/exchange/replica_reduction.h"
#include "pipeline/exchange/tied_tables.h"
#include "pipeline/layout/pipeline_layout.h"
#include "pipeline/stage/chunk.h"
#include "pipeline/stage/group_sums.h"
#include "pipeline/stage/stage_state.h"
#include "runtime/arena.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/communicator.h"
#include "runtime/stream.h"
#include "runtime/trace.h"

namespace hadal {

// Stage owns the memory with which one rank computes its part of the model: parameters, gradients, the activations of
// its chunks, and scratch. It does not communicate. Adam's moments are in stage_state.h.
class Stage {
 public:
  // Reserves the memory in `layout`; Bind sets the addresses. `plan` and `pipeline` must outlive the stage. A stage
  // for inference has no gradients and keeps no activations.
  Stage(const ModelPlan& plan, const PipelineLayout& pipeline, int rank, const Stream& stream, Purpose purpose,
        ArenaLayout& layout);
  absl::Status Bind(const Arena& arena);

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
  const ModelPlan& plan_;
  Stream stream_;
  ParameterStore parameters_;
  Workspace workspace_;
  SharedActivations shared_;
  std::vector<std::unique_ptr<Chunk>> chunks_;
};

// RankParts is everything one rank holds: its stage, the stage's state, its channels, tied tables and replica
// reduction, and a decoder if validations translate. All are reserved in one layout and bound to memory later.
//
// Training and translation share the arena. What steps, evaluations and the profile use, including gradients and the
// channels' buffers, is scratch (runtime/arena.h): translating validation sentences overwrites it. Weights and moments
// are lasting, and so is the checkpoint buffer, which the thread that writes a checkpoint reads at any time.
struct RankParts {
  // Reserves everything in `layout`; `hadal plan` never calls Bind. `plan` and `pipeline` (that of this rank's replica)
  // must outlive the object. `gap_bytes`: see ArenaLayout.
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
  GroupSums groups;
  Channels channels;
  TiedTables tied;
  ReplicaReduction reduction;
  std::optional<DecoderParts> decoder;  // for validations that translate (PipelineLayout::decoder)
};

// The arguments of Engine::Create. Everything referenced must outlive the engine.
struct EngineSetup {
  const ModelPlan& plan;
  const PipelineLayout& pipeline;  // of `world`'s rank, for world.size() ranks
  Stream stream;                   // whose device has the arena
  Purpose purpose = Purpose::kTraining;
  Communicator& world;
  absl::Duration timeout;  // of each wait for a peer
  // A communicator of the same ranks that sends device memory, connected between the pairs of TransferGroups
  // (process_grid.h). Null if messages pass through host memory (pipeline.device_transfers is false).
  Communicator* device_communicator = nullptr;
  int64_t arena_gap_bytes = 0;  // for tests: see ArenaLayout
};

class Engine {
 public:
  // Allocates the arena on the stream's device and binds it.
  // Errors: ResourceExhausted; Unimplemented if the device lacks a kernel that the plan needs; InvalidArgument for a
  // plan in bf16 on the CPU.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const EngineSetup& setup);

  ProcessGrid& grid() { return grid_; }
  // The world's, for use between calls of the engine.
  Collectives& collectives() { return collectives_; }
  Stage& stage() { return parts_.stage; }
  const StageState& state() const { return parts_.state; }
  // The instruction that this rank is executing; any thread may read it.
  const CurrentInstruction& current_instruction() const { return executor_.current_instruction(); }
  int64_t arena_bytes() const { return arena_.bytes(); }
  const Arena& arena() const { return arena_; }
  const ArenaLayout& layout() const { return parts_.layout; }
  // Translates with the current weights (decode/decoder.h). Null if no decoder was planned. Use it only between calls
  // of the engine: it overwrites the engine's scratch, gradients included.
  DecoderParts* decoder() { return parts_.decoder ? &*parts_.decoder : nullptr; }
  // Device memory that recorded graphs take, measured as the fall of the device's free memory.
  int64_t graph_bytes() const;
  // The trace buffer. While tracing is on (default: off), training steps record their events in it.
  TraceBuffer& trace() { return trace_; }
  // Sets the observer of the tensors of all following steps and evaluations; null: none. It changes no bit.
  void Observe(DepthObserver* observer) { observer_ = observer; }
  // Sets whether following steps and evaluations launch graphs, where they exist (the default), or each kernel by
  // itself. Both give the same bits.
  void UseGraphs(bool use);

  // Runs one training step; this replica runs its share of the step's micro-batches. Weights change only if
  // StepResult::applied is true.
  // REQUIRES: `batches` is the step's whole list, numbered from 0; scalars.training.
  absl::StatusOr<StepResult> TrainingStep(std::span<const PackedBatch> batches, const StepScalars& scalars,
                                          const UpdateSettings& update);

  // Returns the loss sums of all batches; forward only, without dropout. Each replica runs a share; sums are added
  // in the order of the batches, so every rank gets the same bits, on every grid. Changes no state.
  // `row_nll`: if not null, on the head's rank it receives the nll of every target row of this replica's batches.
  // `of_batches`: if not null, it receives the sums of each batch, on every rank.
  absl::StatusOr<LossSums> Evaluate(std::span<const PackedBatch> batches, const StepScalars& scalars,
                                    std::vector<float>* row_nll = nullptr, std::vector<LossSums>* of_batches = nullptr);

  // Initialises Admin's vectors ω from a profile of the residual stream (layers/residual_profile.h), on every rank, and
  // returns the profile in the order of the sublayers. Does nothing and returns nothing for other models.
  // One replica runs `batch` forward, with dropout. No other state changes; gradients are undefined until the next
  // training step.
  // REQUIRES: parameters as initialised; scalars.training.
  absl::StatusOr<std::vector<ResidualProfile::Entry>> ProfileResidualStream(const PackedBatch& batch,
                                                                            const StepScalars& scalars);

  // Call after initialising or loading the fp32 weights. Rounds the weights that products read in bf16, sends them to
  // the replicas that do not store their fp32 values, and sends tied tables to the other stages that use them.
  absl::Status DistributeWeights();

 private:
  explicit Engine(const EngineSetup& setup);

  // The grid whose communicators move the tensors that kernels work on.
  ProcessGrid& transfers() { return device_grid_ ? *device_grid_ : grid_; }

  // The batches as this rank's kernels take them; on a device with padding (row_bucket.h). Valid until the next call.
  std::span<const PackedBatch> ForKernels(std::span<const PackedBatch> batches);

  const PipelineLayout& pipeline_;
  ProcessGrid grid_;
  std::optional<ProcessGrid> device_grid_;
  Collectives collectives_;  // the world's
  absl::Duration timeout_;
  RankParts parts_;
  Arena arena_;
  StepTail tail_;
  TraceBuffer trace_;
  ProgramExecutor executor_;
  DepthObserver* observer_ = nullptr;
  std::vector<PackedBatch> padded_;  // on a device: the result of the last ForKernels
};

}  // namespace hadal
