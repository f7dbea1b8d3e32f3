#include "pipeline/engine/program_executor.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "pipeline/engine/engine.h"
#include "runtime/check.h"
#include "runtime/clock.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

bool IsCompute(Operation operation) {
  return operation == Operation::kForward || operation == Operation::kBackwardInput || EndsBackward(operation) ||
         operation == Operation::kOptimizerStep;
}

double StageTimes::*PartOf(Operation operation) {
  if (IsSend(operation)) return &StageTimes::communication_seconds;
  if (IsReceive(operation)) return &StageTimes::wait_seconds;
  return operation == Operation::kForward ? &StageTimes::forward_seconds : &StageTimes::backward_seconds;
}

}  // namespace

ProgramExecutor::ProgramExecutor(const ExecutorSetup& setup)
    : setup_(setup),
      progress_([this] { Progress(); }),
      complete_([this](int32_t first) { Complete(first); }),
      reduce_([this] { return setup_.parts.reduction.Progress(stage().stream()); }) {}

Stage& ProgramExecutor::stage() { return setup_.parts.stage; }

Channels::OfChunk& ProgramExecutor::channels(int chunk) { return setup_.parts.channels.chunk(chunk); }

absl::Status ProgramExecutor::Prepare() {
  for (int c = 0; c < stage().chunks(); ++c) loaded_.emplace_back(stage().chunk(c).spec().slots);
  return clock_.Prepare(stage().stream().device());
}

absl::Status ProgramExecutor::Run(const RankProgram& program, const ProgramInputs& inputs, StepResult& result) {
  inputs_ = inputs;
  result_ = &result;
  losses_.clear();
  untaken_ = nullptr;
  inputs_done_ = weights_done_ = 0;
  row_.clear();
  // An error takes back what was posted: the arena may go next.
  return WithdrawOnError(ExecuteAll(program), setup_.world);
}

absl::Status ProgramExecutor::ExecuteAll(const RankProgram& program) {
  clock_.Begin(result_->times, setup_.trace, progress_);
  HADAL_RETURN_IF_ERROR(setup_.parts.channels.Begin(program));
  for (size_t i = 0; i < program.size(); ++i) {
    current_.Set(inputs_.scalars.step, i, program.size(), program[i]);
    const bool computes = IsCompute(program[i].operation);
    const double waited = computes ? run_queue_.Seconds() : 0;
    const absl::Status status = ExecuteTimed(program, i);
    // First the error of what runs beside the computation: that of the instruction only says that communication is
    // closed.
    HADAL_RETURN_IF_ERROR(progress_status_);
    HADAL_RETURN_IF_ERROR(status);
    if (computes) result_->times.core_wait_seconds += run_queue_.Seconds() - waited;
  }
  HADAL_RETURN_IF_ERROR(FinishCompute());
  return Drain();
}

absl::Status ProgramExecutor::ExecuteTimed(const RankProgram& program, size_t index) {
  const Operation operation = program[index].operation;
  const TraceEvent event = EventOf(program[index], setup_.pipeline.shape, setup_.stage, inputs_.batches);
  if (IsTail(operation)) {
    HADAL_RETURN_IF_ERROR(FinishCompute());
    const TraceScope scope(&setup_.trace, event);
    return Execute(program, index);
  }
  const TraceRange range(&setup_.trace, event);
  HADAL_RETURN_IF_ERROR(Execute(program, index));
  clock_.Mark(PartOf(operation), event);
  return absl::OkStatus();
}

absl::Status ProgramExecutor::FinishCompute() {
  clock_.AwaitAll();
  TakeLoss();
  HADAL_RETURN_IF_ERROR(progress_status_);
  return setup_.parts.channels.CheckHeaders();
}

absl::Status ProgramExecutor::Drain() {
  const Stopwatch watch;
  const TraceScope scope(&setup_.trace, {.kind = TraceKind::kDrain});
  HADAL_RETURN_IF_ERROR(setup_.parts.channels.Drain(setup_.timeout));
  result_->times.communication_seconds += watch.Seconds();
  stage().stream().Synchronize();  // translation may use the scratch now
  return absl::OkStatus();
}

void ProgramExecutor::WaitForDevice() {
  Device* const device = stage().stream().device();
  if (device == nullptr || setup_.pipeline.device_transfers) return;
  while (!device->Idle()) {
    Progress();
    std::this_thread::yield();
  }
}

void ProgramExecutor::TakeLoss() {
  if (untaken_ == nullptr) return;
  clock_.Await(untaken_mark_);
  const PackedBatch& batch = *std::exchange(untaken_, nullptr);
  const OutputHead& head = *stage().chunk(stage().chunks() - 1).head();
  losses_.push_back(head.Losses(stage().Context(batch, inputs_.scalars, nullptr), RowNll(batch)));
}

absl::Status ProgramExecutor::RunAheadUntil(absl::FunctionRef<absl::StatusOr<bool>()> done) {
  Stopwatch since_seen;
  for (int64_t seen = clock_.seen(); !clock_.Poll(); std::this_thread::yield()) {
    Progress();
    HADAL_RETURN_IF_ERROR(progress_status_);
    HADAL_ASSIGN_OR_RETURN(const bool is_done, done());
    if (is_done) break;
    if (std::exchange(seen, clock_.seen()) < clock_.seen()) since_seen.Restart();
    if (absl::Seconds(since_seen.Seconds()) < setup_.timeout) continue;
    return DeadlineExceededError("rank ", setup_.world.rank(), ": its device has not finished within ",
                                 absl::FormatDuration(setup_.timeout),
                                 ": kernels. The GPU or its driver hangs (see dmesg and nvidia-smi -q)");
  }
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
  HADAL_RETURN_IF_ERROR(RunAheadUntil([&] { return channel.Poll(inputs_.batches, setup_.trace); }));
  return channel.Receive(stage().stream(), batch, inputs_.scalars.step, setup_.timeout, meanwhile());
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
  if (!inputs.empty()) WaitForDevice();
  Chunk& computing = stage().chunk(chunk);
  int64_t& loaded = loaded_[chunk][batch.micro_batch % computing.spec().slots];
  clock_.Await(loaded);
  computing.Load(context);
  loaded = clock_.Mark(&StageTimes::forward_seconds);
  computing.Forward(context, inputs);
  if (computing.head() != nullptr) {
    TakeLoss();                      // the next loss overwrites this host buffer
    if (inputs_.scalars.training) {  // the head's gradients are complete
      const int32_t head = stage().plan().output_head();
      setup_.parts.groups.End(stage().stream(), IndexOf(batch), head, head + 1);
    }
    computing.head()->FetchLosses(context);
    untaken_ = &batch;
    untaken_mark_ = clock_.Mark(&StageTimes::forward_seconds);
  }
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
  if (!gradients.empty()) WaitForDevice();
  double recomputed = 0;
  BackwardHooks hooks = HooksOf(whole && &batch == &inputs_.batches.back());
  hooks.recompute_seconds = &recomputed;
  if (whole) {
    stage().chunk(chunk).Backward(context, gradients, hooks);
    EndBackward(chunk, batch);
  } else {
    const int32_t slot = inputs_done_++ % setup_.pipeline.peak_pending[setup_.stage];
    stage().chunk(chunk).BackwardInput(context, gradients, slot, hooks);
  }
  result_->times.recompute_seconds += recomputed;
  result_->times.backward_seconds -= recomputed;  // in which the clock counts it
  if (ends.receive_backward) return ends.receive_backward->Release();
  return absl::OkStatus();
}

absl::Status ProgramExecutor::BackwardWeight(int chunk, const PackedBatch& batch, bool is_last_in_row) {
  const int32_t slot = weights_done_++ % setup_.pipeline.peak_pending[setup_.stage];
  row_.push_back({stage().Context(batch, inputs_.scalars, &progress_), slot});
  if (!is_last_in_row) return absl::OkStatus();
  const bool is_last = &batch == &inputs_.batches.back();
  stage().chunk(chunk).BackwardWeight(row_, HooksOf(is_last));
  row_.clear();
  EndBackward(chunk, batch);
  return absl::OkStatus();
}

BackwardHooks ProgramExecutor::HooksOf(bool is_last) const {
  BackwardHooks hooks{.trace = &setup_.trace};
  // Replicas start on what is complete: this micro-batch is launched in parts.
  if (is_last && setup_.pipeline.grid.replicas > 1) hooks.complete = &complete_;
  return hooks;
}

absl::Status ProgramExecutor::SendForward(int chunk, const PackedBatch& batch) {
  Chunk& sender = stage().chunk(chunk);
  EdgeViews edges;
  for (size_t i = 0; i < sender.output_edges().size(); ++i) edges.push_back(sender.output(i, batch));
  return Send(*channels(chunk).send_forward, batch, edges);
}

absl::Status ProgramExecutor::SendBackward(int chunk, const PackedBatch& batch) {
  Chunk& sender = stage().chunk(chunk);
  EdgeViews edges;
  for (size_t i = 0; i < sender.input_edges().size(); ++i) edges.push_back(sender.input_gradient(i, batch));
  return Send(*channels(chunk).send_backward, batch, edges);
}

absl::Status ProgramExecutor::Send(SendChannel& channel, const PackedBatch& batch, const EdgeViews& edges) {
  WaitForDevice();
  HADAL_RETURN_IF_ERROR(RunAheadUntil([&] { return channel.HasRoom(); }));
  return channel.Send(stage().stream(), batch, inputs_.scalars.step, edges, setup_.timeout, meanwhile());
}

void ProgramExecutor::Progress() {
  setup_.transfers.Progress();  // a communicator of devices moves the world's along
  if (!progress_status_.ok()) return;
  if (setup_.trace.recording()) progress_status_ = setup_.parts.channels.Poll(inputs_.batches, setup_.trace);
  if (progress_status_.ok()) progress_status_ = setup_.parts.reduction.Progress(stage().stream());
}

void ProgramExecutor::EndBackward(int chunk, const PackedBatch& batch) {
  const int32_t first = setup_.pipeline.first_sublayer(setup_.stage, chunk);
  const int32_t last = std::min(setup_.pipeline.last_sublayer(setup_.stage, chunk), stage().plan().output_head());
  if (&batch != &inputs_.batches.back()) return setup_.parts.groups.End(stage().stream(), IndexOf(batch), first, last);
  clock_.Mark(&StageTimes::backward_seconds);
  Complete(first);
  clock_.Mark(&StageTimes::communication_seconds);
}

void ProgramExecutor::Complete(int32_t first) {
  if (!progress_status_.ok()) return;
  setup_.parts.groups.Complete(stage().stream(), first);
  progress_status_ = setup_.parts.reduction.Complete(stage().stream(), first);
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

namespace {

TraceKind KindOf(Operation operation) {
  switch (operation) {
    case Operation::kReceiveForward:
    case Operation::kReceiveBackward:
      return TraceKind::kReceive;
    case Operation::kForward:
      return TraceKind::kForward;
    case Operation::kSendForward:
    case Operation::kSendBackward:
      return TraceKind::kSend;
    case Operation::kBackward:
    case Operation::kBackwardInput:
      return TraceKind::kBackward;
    case Operation::kBackwardWeight:
      return TraceKind::kBackwardWeight;
    case Operation::kReduceTiedGradients:
      return TraceKind::kTiedGradients;
    case Operation::kReduceOverReplicas:
      return TraceKind::kReduceOverReplicas;
    case Operation::kGlobalNorm:
      return TraceKind::kGlobalNorm;
    case Operation::kOptimizerStep:
      return TraceKind::kOptimizer;
    case Operation::kGatherOverReplicas:
      return TraceKind::kGatherOverReplicas;
    case Operation::kDistributeTiedWeights:
      return TraceKind::kTiedWeights;
  }
  return TraceKind::kStep;
}

}  // namespace

TraceEvent EventOf(const Instruction& instruction, const ScheduleShape& shape, int rank,
                   std::span<const PackedBatch> batches) {
  TraceEvent event{.kind = KindOf(instruction.operation)};
  if (!IsTail(instruction.operation)) {
    event.chunk = instruction.chunk;
    event.micro_batch = batches[instruction.micro_batch].micro_batch;
  }
  if (IsSend(instruction.operation) || IsReceive(instruction.operation)) {
    event.channel = ChannelOf(shape, rank, instruction).number;
  }
  return event;
}

}  // namespace hadal
