#include "pipeline/engine/program_executor.h"

#include "pipeline/schedule/instruction_event.h"
#include "runtime/check.h"
#include "runtime/clock.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

bool IsCompute(Operation operation) {
  return operation == Operation::kForward || operation == Operation::kBackwardInput || EndsBackward(operation) ||
         operation == Operation::kOptimizerStep;
}

}  // namespace

ProgramExecutor::ProgramExecutor(const ExecutorSetup& setup)
    : setup_(setup), progress_([this] { Progress(); }), complete_([this](int32_t first) { Complete(first); }) {}

absl::Status ProgramExecutor::Run(const RankProgram& program, const ProgramInputs& inputs, StepResult& result) {
  inputs_ = inputs;
  result_ = &result;
  losses_.clear();
  inputs_done_ = weights_done_ = 0;
  row_.clear();
  // An error takes back what was posted: the arena may go next.
  return WithdrawOnError(ExecuteAll(program), setup_.world);
}

absl::Status ProgramExecutor::ExecuteAll(const RankProgram& program) {
  HADAL_RETURN_IF_ERROR(setup_.parts.channels.Begin(program));
  for (size_t i = 0; i < program.size(); ++i) {
    const TraceScope scope(&setup_.trace, EventOf(program[i], setup_.pipeline.shape, setup_.stage, inputs_.batches));
    place_.Set(inputs_.scalars.step, i, program.size(), program[i]);
    const bool computes = IsCompute(program[i].operation);
    const double waited = computes ? run_queue_.Seconds() : 0;
    const absl::Status status = Execute(program, i);
    // First what broke beside the computation: after that the instruction finds communication closed, and does not know
    // why.
    HADAL_RETURN_IF_ERROR(progress_status_);
    HADAL_RETURN_IF_ERROR(status);
    if (computes) result_->times.core_wait_seconds += run_queue_.Seconds() - waited;
  }
  return Drain();
}

absl::Status ProgramExecutor::Drain() {
  const Stopwatch watch;
  const TraceScope scope(&setup_.trace, {.kind = TraceKind::kDrain});
  HADAL_RETURN_IF_ERROR(setup_.parts.channels.Drain(setup_.timeout));
  result_->times.communication_seconds += watch.Seconds();
  stage().stream().Synchronize();  // translation may use the scratch now
  return absl::OkStatus();
}

absl::Status ProgramExecutor::Execute(const RankProgram& program, size_t index) {
  const Instruction& instruction = program[index];
  const int c = instruction.chunk;
  const PackedBatch& batch = inputs_.batches[IsTail(instruction.operation) ? 0 : instruction.micro_batch];
  StepTail& tail = setup_.tail;
  switch (instruction.operation) {
    case Operation::kReceiveForward:
      return Receive(*channels(c).receive_forward, batch);
    case Operation::kForward:
      return Forward(c, batch);
    case Operation::kSendForward:
      return SendForward(c, batch);
    case Operation::kReceiveBackward:
      return Receive(*channels(c).receive_backward, batch);
    case Operation::kBackward:
    case Operation::kBackwardInput:
      return Backward(c, batch, instruction.operation == Operation::kBackward);
    case Operation::kBackwardWeight: {
      const bool more = index + 1 < program.size() && program[index + 1].operation == Operation::kBackwardWeight &&
                        program[index + 1].chunk == c;
      return BackwardWeight(c, batch, !more);
    }
    case Operation::kSendBackward:
      return SendBackward(c, batch);
    case Operation::kReduceTiedGradients:
      return tail.ReduceTiedGradients(*result_);
    case Operation::kReduceOverReplicas:
      return tail.ReduceOverReplicas(*result_);
    case Operation::kGlobalNorm:
      return tail.ComputeNorm(losses_, *result_);
    case Operation::kOptimizerStep:
      tail.Update(*result_);
      return absl::OkStatus();
    case Operation::kGatherOverReplicas:
      return tail.GatherOverReplicas(*result_);
    case Operation::kDistributeTiedWeights:
      return tail.DistributeTiedWeights(*result_);
  }
  HADAL_CHECK(false);  // no operation is left
}

absl::Status ProgramExecutor::Receive(ReceiveChannel& channel, const PackedBatch& batch) {
  const Stopwatch watch;
  HADAL_RETURN_IF_ERROR(channel.Receive(stage().stream(), batch, inputs_.scalars.step, setup_.timeout));
  result_->times.wait_seconds += watch.Seconds();
  return absl::OkStatus();
}

absl::Status ProgramExecutor::Forward(int chunk, const PackedBatch& batch) {
  Channels::OfChunk& ends = channels(chunk);
  ProfileRelay* const profile = inputs_.profile;
  SublayerContext context = stage().Context(batch, inputs_.scalars, &progress_);
  context.observer = inputs_.observer;
  if (profile != nullptr) {
    context.observer = &profile->profile();
    if (ends.receive_forward) HADAL_RETURN_IF_ERROR(profile->Receive(RankBehind(chunk, -1)));
  }
  EdgeViews inputs;
  if (ends.receive_forward) inputs = ends.receive_forward->Front(batch);
  const Vector row_nll = ends.send_forward ? Vector() : RowNll(batch);
  const LossSums loss = stage().chunk(chunk).Forward(context, inputs, row_nll, result_->times);
  if (!ends.send_forward) losses_.push_back(loss);
  if (profile != nullptr && ends.send_forward) HADAL_RETURN_IF_ERROR(profile->Send(RankBehind(chunk, 1)));
  if (ends.receive_forward) return ends.receive_forward->Release();
  return absl::OkStatus();
}

absl::Status ProgramExecutor::Backward(int chunk, const PackedBatch& batch, bool whole) {
  Channels::OfChunk& ends = channels(chunk);
  SublayerContext context = stage().Context(batch, inputs_.scalars, &progress_);
  context.observer = inputs_.observer;
  EdgeViews gradients;
  if (ends.receive_backward) gradients = ends.receive_backward->Front(batch);
  if (whole) {
    const bool is_last = &batch == &inputs_.batches.back();
    stage().chunk(chunk).Backward(context, gradients, result_->times, HooksOf(is_last));
    if (is_last) CompleteChunk(chunk);
  } else {
    const int32_t slot = inputs_done_++ % setup_.pipeline.peak_pending[setup_.stage];
    stage().chunk(chunk).BackwardInput(context, gradients, slot, result_->times, HooksOf(/*is_last=*/false));
  }
  if (ends.receive_backward) return ends.receive_backward->Release();
  return absl::OkStatus();
}

absl::Status ProgramExecutor::BackwardWeight(int chunk, const PackedBatch& batch, bool is_last_in_row) {
  const int32_t slot = weights_done_++ % setup_.pipeline.peak_pending[setup_.stage];
  row_.push_back({stage().Context(batch, inputs_.scalars, &progress_), slot});
  if (!is_last_in_row) return absl::OkStatus();
  const bool is_last = &batch == &inputs_.batches.back();
  stage().chunk(chunk).BackwardWeight(row_, result_->times, HooksOf(is_last));
  row_.clear();
  if (is_last) CompleteChunk(chunk);
  return absl::OkStatus();
}

BackwardHooks ProgramExecutor::HooksOf(bool is_last) const {
  BackwardHooks hooks{.trace = &setup_.trace};
  // Replicas start on what is complete: this micro-batch is launched in parts.
  if (is_last && setup_.pipeline.grid.replicas > 1) hooks.complete = &complete_;
  return hooks;
}

absl::Status ProgramExecutor::SendForward(int chunk, const PackedBatch& batch) {
  const Stopwatch watch;
  Chunk& sender = stage().chunk(chunk);
  EdgeViews edges;
  for (size_t i = 0; i < sender.output_edges().size(); ++i) edges.push_back(sender.output(i, batch));
  HADAL_RETURN_IF_ERROR(
      channels(chunk).send_forward->Send(stage().stream(), batch, inputs_.scalars.step, edges, setup_.timeout));
  result_->times.communication_seconds += watch.Seconds();
  return absl::OkStatus();
}

absl::Status ProgramExecutor::SendBackward(int chunk, const PackedBatch& batch) {
  const Stopwatch watch;
  Chunk& sender = stage().chunk(chunk);
  EdgeViews edges;
  for (size_t i = 0; i < sender.input_edges().size(); ++i) edges.push_back(sender.input_gradient(i, batch));
  HADAL_RETURN_IF_ERROR(
      channels(chunk).send_backward->Send(stage().stream(), batch, inputs_.scalars.step, edges, setup_.timeout));
  result_->times.communication_seconds += watch.Seconds();
  return absl::OkStatus();
}

void ProgramExecutor::Progress() {
  setup_.transfers.Progress();  // a communicator of devices moves the world's along
  if (!progress_status_.ok()) return;
  if (setup_.trace.recording()) progress_status_ = setup_.parts.channels.Poll(inputs_.batches, setup_.trace);
  if (progress_status_.ok()) progress_status_ = setup_.parts.reduction.Progress(stage().stream());
}

void ProgramExecutor::CompleteChunk(int chunk) {
  const Stopwatch watch;
  Complete(setup_.pipeline.first_sublayer(setup_.stage, chunk));
  result_->times.communication_seconds += watch.Seconds();
}

void ProgramExecutor::Complete(int32_t first) {
  if (progress_status_.ok()) progress_status_ = setup_.parts.reduction.Complete(stage().stream(), first);
}

Vector ProgramExecutor::RowNll(const PackedBatch& batch) {
  std::vector<float>* const all = inputs_.row_nll;
  if (all == nullptr) return {};
  const int64_t rows = batch.sentence_target_rows();
  all->resize(all->size() + rows);
  return {all->data() + all->size() - rows, rows};
}

int ProgramExecutor::RankBehind(int chunk, int chunks) const {
  const int stages = setup_.pipeline.shape.stages;
  return (chunk * stages + setup_.stage + chunks) % stages;
}

}  // namespace hadal
