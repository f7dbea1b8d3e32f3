// Executes a rank's program (schedule.h) on its parts: one loop with one switch, and what belongs to the program in
// progress.
//
// The flow of one micro-batch:  receive → chunk forward → send → … → head: loss and its gradient → … → receive → chunk
// backward → send; then the step's tail (step_tail.h). The sum over replicas starts beside the last micro-batch's
// backward, as sublayers become complete.
// Progress of transfers is made between sublayers. Every wait has a deadline whose error names peer, direction and
// micro-batch.
// Threads: one thread a rank makes all calls but place(). Blocking: Run; when it returns nothing is under way, and the
// device is idle. After an error the job can only end: an error of this rank's own (a message of another step, say)
// has closed its communicators, before the arena can go that its receives lie in.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "layers/depth_observer.h"
#include "layers/loss_head.h"
#include "layers/sublayer_context.h"
#include "pipeline/pipeline_plan.h"
#include "pipeline/profile_relay.h"
#include "pipeline/program_place.h"
#include "pipeline/rank_parts.h"
#include "pipeline/schedule.h"
#include "pipeline/step_tail.h"
#include "runtime/comm/communicator.h"
#include "runtime/data/packed_batch.h"
#include "runtime/run_queue_clock.h"
#include "runtime/trace.h"

namespace hadal {

// On what programs run. All must outlive the executor.
struct ExecutorSetup {
  const PipelinePlan& pipeline;
  int stage = 0;            // of this rank
  RankParts& parts;         // bound before the first program
  StepTail& tail;           // told of each step before its program
  Communicator& world;      // the host's
  Communicator& transfers;  // the world's that moves what kernels work on: the devices', or the host's
  TraceBuffer& trace;
  absl::Duration timeout;  // of each wait for a peer
};

// With what one program runs.
struct ProgramInputs {
  std::span<const PackedBatch> batches;  // [M] the program's micro-batches, as this rank's kernels take them
  StepScalars scalars;
  DepthObserver* observer = nullptr;      // who looks at the tensors (it changes no bit of them); null: nobody
  std::vector<float>* row_nll = nullptr;  // on the head's rank: the nll of every target row is added; null: not wanted
  ProfileRelay* profile = nullptr;        // of the residual stream, in a forward program that profiles it
};

class ProgramExecutor {
 public:
  explicit ProgramExecutor(const ExecutorSetup& setup);
  // Its parts call back.
  ProgramExecutor(const ProgramExecutor&) = delete;
  ProgramExecutor& operator=(const ProgramExecutor&) = delete;

  // Runs `program` to its end. Times are added to the result's; the tail fills the rest.  REQUIRES: as many batches as
  // the program has micro-batches.
  absl::Status Run(const RankProgram& program, const ProgramInputs& inputs, StepResult& result);

  // Of each micro-batch of the last program, on the head's rank; else empty.
  std::span<const LossSums> losses() const { return losses_; }
  // Where in its program this rank is; any thread may read it.
  const ProgramPlace& place() const { return place_; }

 private:
  Stage& stage() { return setup_.parts.stage; }
  Channels::OfChunk& channels(int chunk) { return setup_.parts.channels.chunk(chunk); }

  absl::Status ExecuteAll(const RankProgram& program);
  absl::Status Drain();
  absl::Status Execute(const Instruction& instruction);
  absl::Status Receive(ReceiveChannel& channel, const PackedBatch& batch);
  absl::Status Forward(int chunk, const PackedBatch& batch);
  absl::Status Backward(int chunk, const PackedBatch& batch);
  absl::Status SendForward(int chunk, const PackedBatch& batch);
  absl::Status SendBackward(int chunk, const PackedBatch& batch);
  // Called between sublayers: whatever can move without waiting does.
  void Progress();
  // The step's gradients of all sublayers ≥ `first` are complete on this rank: with replicas they leave.
  void Complete(int32_t first);
  // Where the nll of the batch's rows goes; empty where nobody wants it.
  Vector RowNll(const PackedBatch& batch);
  // The rank that holds the chunk `chunks` places after `chunk` of this rank in the depth (before it: −1).
  int RankBehind(int chunk, int chunks) const;

  const ExecutorSetup setup_;
  const std::function<void()> progress_;         // Progress
  const std::function<void(int32_t)> complete_;  // Complete
  RunQueueClock run_queue_;
  ProgramPlace place_;

  // The program in progress.
  ProgramInputs inputs_;
  StepResult* result_ = nullptr;
  std::vector<LossSums> losses_;  // on the head's rank, of each micro-batch so far
  absl::Status progress_status_;  // of what ran beside the computation: the first error
};

}  // namespace hadal
