// The engine: one loop with one switch that executes a rank's program (pipeline/schedule.h) on its stage.
//
// The flow of one micro-batch:  receive → chunk forward → send → … → head: loss and its gradient → … → receive → chunk backward
// → send; then the step's tail: tied gradients summed, global norm, optimizer, tied weights shared.
// Progress of transfers is made between sublayers. Every wait has a deadline whose error names peer, direction and micro-batch.
// Threads: one thread a rank makes all calls. Blocking: all. After an error the job can only end.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "pipeline/channels.h"
#include "pipeline/gradient_norm.h"
#include "pipeline/pipeline_plan.h"
#include "pipeline/program_place.h"
#include "pipeline/stage.h"
#include "pipeline/tied_tables.h"
#include "pipeline/train_options.h"
#include "runtime/arena.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/communicator.h"
#include "runtime/trace.h"

namespace hadal {

// What the tail of a training step needs to know.
struct UpdateSettings {
  OptimizerOptions optimizer;
  double learning_rate = 0;
  StopVote vote = StopVote::kContinue;
};

struct StepResult {
  GlobalGradient gradient;  // with the step's loss sums; the same on every rank
  bool applied = false;     // false: not finite, nothing was changed
  StageTimes times;         // of this rank
  double seconds = 0;
};

// All buffers of a rank in one layout; `hadal plan` prints it without ever binding it.
class RankLayout {
 public:
  // `plan` and `pipeline` must outlive the object.
  RankLayout(const ModelPlan& plan, const PipelinePlan& pipeline, int rank, const Stream& stream, bool training);

  const ArenaLayout& layout() const { return layout_; }

 private:
  friend class Engine;
  ArenaLayout layout_;
  Stage stage_;
  Channels channels_;
  TiedTables tied_;
};

class Engine {
 public:
  // Allocates the arena and binds it. `plan` and `pipeline` must outlive the engine. Errors: ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const ModelPlan& plan, const PipelinePlan& pipeline,
                                                        const Stream& stream, bool training, Communicator& communicator,
                                                        absl::Duration timeout);

  Stage& stage() { return layout_.stage_; }
  // Where in its program this rank is; any thread may read it.
  const ProgramPlace& place() const { return place_; }
  int64_t arena_bytes() const { return arena_.bytes(); }
  // What training steps record into while it records (off by default).
  TraceBuffer& trace() { return trace_; }

  // One training step over the step's micro-batches; weights change when the result says applied.
  // REQUIRES: batches.size() = the plan's micro_batches, numbered from 0; scalars.training.
  absl::StatusOr<StepResult> TrainingStep(std::span<const PackedBatch> batches, const StepScalars& scalars,
                                          const UpdateSettings& update);

  // Forward only, dropout off: the loss sums of all batches, the same on every rank. Changes no state.
  // `row_nll` (on the head's rank): receives the nll of every target row, batch after batch; empty where not wanted.
  absl::StatusOr<LossSums> Evaluate(std::span<const PackedBatch> batches, const StepScalars& scalars,
                                    std::vector<float>* row_nll = nullptr);

  // Sends the owners' tied tables to the other ranks that use them: after initialisation and after a load.
  absl::Status ShareTiedWeights() { return layout_.tied_.ShareWeights(stage().parameters(), timeout_); }

 private:
  Engine(const ModelPlan& plan, const PipelinePlan& pipeline, const Stream& stream, bool training,
         Communicator& communicator, absl::Duration timeout);

  absl::Status Run(const RankProgram& program);
  absl::Status Execute(const Instruction& instruction);
  void Trace(const Instruction& instruction, double begin_seconds);
  absl::Status Receive(ReceiveChannel& channel, const PackedBatch& batch);
  absl::Status Forward(int chunk, const PackedBatch& batch);
  absl::Status Backward(int chunk, const PackedBatch& batch);
  absl::Status SendForward(int chunk, const PackedBatch& batch);
  absl::Status SendBackward(int chunk, const PackedBatch& batch);
  absl::Status ComputeNorm();

  const ModelPlan& plan_;
  const PipelinePlan& pipeline_;
  Communicator& communicator_;
  Collectives collectives_;
  absl::Duration timeout_;
  RankLayout layout_;
  Arena arena_;
  GradientNorm norm_;
  std::function<void()> progress_;
  TraceBuffer trace_;
  ProgramPlace place_;

  // The program in progress.
  std::span<const PackedBatch> batches_;
  StepScalars scalars_;
  UpdateSettings update_;
  LossSums loss_;
  std::vector<float>* row_nll_ = nullptr;
  StepResult result_;
};

}  // namespace hadal
