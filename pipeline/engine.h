// The engine: what a rank does with its part of the model: training steps, evaluations, the profile of new weights. It
// has the rank's memory, makes the program of each (schedule.h), and has it executed (program_executor.h).
//
// Memory: one arena per rank (rank_parts.h).
// Threads: one thread per rank makes all calls. Blocking: all; when a call returns nothing is under way. After an error
// the job can only end: a rank's own error (a message of another step, say) also closes its communicators, before the
// arena can go that its receives lie in.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "layers/purpose.h"
#include "pipeline/pipeline_plan.h"
#include "pipeline/process_grid.h"
#include "pipeline/program_executor.h"
#include "pipeline/program_place.h"
#include "pipeline/rank_parts.h"
#include "pipeline/step_tail.h"
#include "runtime/arena.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/communicator.h"
#include "runtime/trace.h"

namespace hadal {

// What an engine is made of. What is referred to must outlive it.
struct EngineSetup {
  const ModelPlan& plan;
  const PipelinePlan& pipeline;  // of `world`'s rank, for world.size() ranks
  Stream stream;                 // whose device has the arena
  Purpose purpose = Purpose::kTraining;
  Communicator& world;
  absl::Duration timeout;  // of each wait for a peer
  // The same ranks' communicator of devices' memory, connected as TransferPairs says (transfer_pairs.h). Null, where
  // messages lie in the host's memory: without pipeline.device_transfers.
  Communicator* devices = nullptr;
};

class Engine {
 public:
  // Allocates the arena, on the stream's device, and binds it.
  // Errors: ResourceExhausted; Unimplemented for what the device has no kernels for; InvalidArgument for a plan in bf16
  // on the CPU.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const EngineSetup& setup);

  ProcessGrid& grid() { return grid_; }
  Stage& stage() { return parts_.stage; }
  const StageState& state() const { return parts_.state; }
  // Where in its program this rank is; any thread may read it.
  const ProgramPlace& place() const { return executor_.place(); }
  int64_t arena_bytes() const { return arena_.bytes(); }
  const Arena& arena() const { return arena_; }
  // What translates with the weights as they are (decode/decoder.h), between two calls of the engine, whose scratch it
  // overwrites, gradients included; null where the plan has no decoder.
  DecoderParts* decoder() { return parts_.decoder ? &*parts_.decoder : nullptr; }
  // What the device's free memory fell by as graphs were made.
  int64_t graph_bytes() const;
  // What training steps record into while it records (off by default).
  TraceBuffer& trace() { return trace_; }
  // Who looks at the tensors of the programs that follow (it changes no bit of them); null: nobody.
  void Observe(DepthObserver* observer) { observer_ = observer; }
  // Whether the programs that follow launch graphs, where they have some (as they do by default), or kernel by kernel:
  // the same bits.
  void UseGraphs(bool use);

  // One training step over the step's micro-batches, of which this replica runs its share; weights change when the
  // result says applied.  REQUIRES: `batches` is the whole list, numbered from 0; scalars.training.
  absl::StatusOr<StepResult> TrainingStep(std::span<const PackedBatch> batches, const StepScalars& scalars,
                                          const UpdateSettings& update);

  // Forward only, dropout off: the loss sums of all batches, the same on every rank and for every grid: replicas share
  // the batches, whose sums are added in their order. Changes no state.
  // `row_nll` (on the head's rank): receives the nll of every target row of this replica's batches; null where not
  // wanted.
  absl::StatusOr<LossSums> Evaluate(std::span<const PackedBatch> batches, const StepScalars& scalars,
                                    std::vector<float>* row_nll = nullptr);

  // Starts the vectors ω from the profile of the residual stream (layers/residual_profile.h), on every rank, and
  // returns what was found, in the order of the sublayers; does nothing where the plan has none to profile. One replica
  // runs `batch` forward, dropout on. The rest of the state does not change; gradients are left undefined until the
  // next training step.
  // REQUIRES: parameters as initialised, scalars.training.
  absl::StatusOr<std::vector<ResidualProfile::Entry>> ProfileResidualStream(const PackedBatch& batch,
                                                                            const StepScalars& scalars);

  // After initialisation and after a load, which fill what a rank keeps in fp32: rounds what products read in bf16, and
  // sends it to the replicas that keep other masters, and tied tables to the other stages that use them.
  absl::Status ShareWeights();

 private:
  explicit Engine(const EngineSetup& setup);

  // Who moves what kernels work on.
  ProcessGrid& transfers() { return device_grid_ ? *device_grid_ : grid_; }

  // The batches as this rank's kernels take them: for a device with padding rows (row_bucket.h). Valid until the next
  // call.
  std::span<const PackedBatch> ForKernels(std::span<const PackedBatch> batches);

  const PipelinePlan& pipeline_;
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
  std::vector<PackedBatch> padded_;  // on a device: ForKernels' last
};

}  // namespace hadal
