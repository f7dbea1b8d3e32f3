// Executes a rank's program, its list of instructions for a step or an evaluation (schedule.h): one loop with one
// switch over the instructions, and the state of the program in progress.
//
// The flow of one micro-batch:  receive → chunk forward → send → … → head: loss and its gradient → … → receive → chunk
// backward → send; then the step's tail (step_tail.h). A backward may be in two halves: input half → send → … → weight
// half. The sum over replicas starts during the last micro-batch's backward or weight half, as the gradients of
// sublayers become complete.
// Transfers make progress between sublayers. Every wait has a deadline; its error names peer, direction and
// micro-batch.
// On a device the host runs ahead (program_clock.h): it waits for messages, and otherwise only for device work behind
// which more work is already enqueued. Once, before the tail, the host waits until the device is idle, and reads
// losses, headers of messages and times; the tail has waits of its own. So the number of waits for an idle device
// depends neither on micro-batches nor on chunks, except that with messages in host memory each message waits for the
// kernel that computes it.
// Threads: one thread per rank makes all calls except current_instruction(). Blocking: Run; when it returns, no
// transfer is under way and the device is idle. After an error the job can only end. If the error is this rank's own
// (say, a message of another step), the executor has closed its communicators, so that no receive can write into an
// arena that is freed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "layers/chunk_part.h"
#include "layers/depth_observer.h"
#include "layers/output_head.h"
#include "pipeline/engine/current_instruction.h"
#include "pipeline/engine/program_clock.h"
#include "pipeline/engine/step_tail.h"
#include "pipeline/exchange/channel.h"
#include "pipeline/exchange/profile_relay.h"
#include "pipeline/layout/pipeline_layout.h"
#include "pipeline/schedule/schedule.h"
#include "pipeline/stage/chunk.h"
#include "runtime/comm/communicator.h"
#include "runtime/data/packed_batch.h"
#include "runtime/trace.h"

namespace hadal {

struct RankParts;  // engine.h
class Stage;

// Returns the trace event (runtime/trace.h) of an instruction of a rank's program.
// `batches`: the program's micro-batches. `rank`: within its pipeline of `shape`.
TraceEvent EventOf(const Instruction& instruction, const ScheduleShape& shape, int rank,
                   std::span<const PackedBatch> batches);

// What the executor uses for all programs. Everything referenced must outlive it.
struct ExecutorSetup {
  const PipelineLayout& pipeline;
  int stage = 0;            // of this rank
  RankParts& parts;         // bound before the first program
  StepTail& tail;           // its Begin must be called before each training step's program
  Communicator& world;      // for host memory
  Communicator& transfers;  // of the same ranks: moves the tensors that kernels work on, in device or host memory
  TraceBuffer& trace;
  absl::Duration timeout;  // of each wait for a peer
};

// The inputs of one program.
struct ProgramInputs {
  std::span<const PackedBatch> batches;   // [M] of the program; on a device padded to the sizes of its graphs
  StepScalars scalars;                    // of this step (layers/chunk_part.h)
  DepthObserver* observer = nullptr;      // sees the tensors and changes no bit of them; may be null
  std::vector<float>* row_nll = nullptr;  // if not null: on the head's rank the nll of every target row is appended
  ProfileRelay* profile = nullptr;        // null except for a forward program that profiles the residual stream
};

class ProgramExecutor {
 public:
  explicit ProgramExecutor(const ExecutorSetup& setup);
  // Must be called once, before the first program. Errors: ResourceExhausted.
  absl::Status Prepare();
  // Not copyable: its callbacks hold its address.
  ProgramExecutor(const ProgramExecutor&) = delete;
  ProgramExecutor& operator=(const ProgramExecutor&) = delete;

  // Runs `program` to its end. Adds its times to result.times; its tail, if any, fills the other fields.
  // REQUIRES: inputs.batches has one batch for each of the program's micro-batches.
  absl::Status Run(const RankProgram& program, const ProgramInputs& inputs, StepResult& result);

  // The loss of each micro-batch of the last program, on the head's rank; elsewhere empty.
  std::span<const LossSums> losses() const { return losses_; }
  // The instruction that this rank is executing; any thread may read it.
  const CurrentInstruction& current_instruction() const { return current_; }

 private:
  Stage& stage();
  Channels::OfChunk& channels(int chunk);

  absl::Status ExecuteAll(const RankProgram& program);
  absl::Status ExecuteTimed(const RankProgram& program, size_t index);
  absl::Status Execute(const RankProgram& program, size_t index);
  // Waits for the device, and reads its results: times, the last loss, headers of messages. A second call changes
  // nothing.
  absl::Status FinishCompute();
  absl::Status Drain();
  // Must be called before a copy that waits for the device: waits for it while transfers make progress.
  void WaitForDevice();
  // If the host has not read the loss of the head's last forward: waits for it and appends it to losses_.
  void TakeLoss();
  // Lets transfers and sums make progress until `done`, or until the device is idle: then the caller may block on
  // `done` alone. Errors: those of `done` and of transfers; DeadlineExceeded if the device hangs.
  absl::Status RunAheadUntil(absl::FunctionRef<absl::StatusOr<bool>()> done);
  // Called during a wait for a message: adds gradients of replicas. Null with one replica.
  const std::function<absl::Status()>* meanwhile() const {
    return setup_.pipeline.grid.replicas > 1 ? &reduce_ : nullptr;
  }
  absl::Status Receive(ReceiveChannel& channel, const PackedBatch& batch);
  absl::Status Forward(int chunk, const PackedBatch& batch);
  // `whole`: both halves, else only the input half.
  absl::Status Backward(int chunk, const PackedBatch& batch, bool whole);
  // Consecutive weight halves of a chunk run together, when the last of them is called (`is_last_in_row`).
  absl::Status BackwardWeight(int chunk, const PackedBatch& batch, bool is_last_in_row);
  absl::Status Send(SendChannel& channel, const PackedBatch& batch, const EdgeViews& edges);
  absl::Status SendForward(int chunk, const PackedBatch& batch);
  absl::Status SendBackward(int chunk, const PackedBatch& batch);
  // Called between sublayers: moves transfers along without waiting.
  void Progress();
  // Called when the step's gradients of all sublayers ≥ `first` are complete on this rank: starts their sum over
  // replicas.
  void Complete(int32_t first);
  // Called when a chunk's gradients of the batch are added: informs GroupSums or, after the last batch, calls Complete.
  void EndBackward(int chunk, const PackedBatch& batch);
  int IndexOf(const PackedBatch& batch) const { return static_cast<int>(&batch - inputs_.batches.data()); }
  // Returns the hooks of a backward. `is_last`: whether it is that of the step's last micro-batch.
  BackwardHooks HooksOf(bool is_last) const;
  // Appends room for the nll of the batch's rows to inputs_.row_nll and returns it; empty if that is null.
  Vector RowNll(const PackedBatch& batch);
  // Returns the rank that holds the global chunk `chunks` after this rank's chunk `chunk` (−1: the one before it).
  int RankBehind(int chunk, int chunks) const;

  const ExecutorSetup setup_;
  const std::function<void()> progress_;         // Progress
  const std::function<void(int32_t)> complete_;  // Complete
  const std::function<absl::Status()> reduce_;   // ReplicaReduction::Progress
  RunQueueClock run_queue_;
  ProgramClock clock_;
  CurrentInstruction current_;

  // The program in progress.
  ProgramInputs inputs_;
  StepResult* result_ = nullptr;
  std::vector<LossSums> losses_;  // of each micro-batch so far, on the head's rank
  // The last forward of the head whose loss has not been read by the host, or null; and the mark after it.
  const PackedBatch* untaken_ = nullptr;
  int64_t untaken_mark_ = 0;
  std::vector<std::vector<int64_t>> loaded_;    // [chunks, slots] the mark after the last Load
  absl::Status progress_status_;                // the first error of Progress
  int32_t inputs_done_ = 0, weights_done_ = 0;  // halves of backwards so far
  std::vector<PendingHalf> row_;                // weight halves that wait for the last in their row
};

}  // namespace hadal
