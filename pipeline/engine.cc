#include "pipeline/engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "layers/device_support.h"
#include "pipeline/instruction_event.h"
#include "pipeline/row_bucket.h"
#include "runtime/check.h"
#include "runtime/clock.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

bool IsCompute(Operation operation) {
  return operation == Operation::kForward || operation == Operation::kBackward ||
         operation == Operation::kOptimizerStep;
}

}  // namespace

Engine::Engine(const EngineSetup& setup)
    : pipeline_(setup.pipeline),
      grid_(setup.world, setup.pipeline.grid),
      collectives_(setup.world, setup.timeout),
      timeout_(setup.timeout),
      parts_(setup.plan, setup.pipeline, grid_.stage(), setup.stream, setup.purpose),
      tail_(setup.plan, setup.pipeline, parts_, collectives_, setup.timeout),
      progress_([this] { Progress(); }),
      complete_([this](int32_t first) { Complete(first); }) {
  HADAL_CHECK_EQ(grid_.replica(), pipeline_.replica);
  HADAL_CHECK_EQ(setup.devices != nullptr, pipeline_.device_transfers);
  if (setup.devices != nullptr) device_grid_.emplace(*setup.devices, pipeline_.grid);
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineSetup& setup) {
  Device* const device = setup.stream.device();
  if (device != nullptr) {
    HADAL_RETURN_IF_ERROR(CheckDeviceSupport(setup.plan, device->kernels()));
  } else if (setup.plan.compute_storage != Storage::kFloat32) {
    return absl::InvalidArgumentError(absl::StrCat("device.precision: bf16 needs a GPU, and rank ", setup.world.rank(),
                                                   " computes on the CPU; take fp32, or auto"));
  }
  std::unique_ptr<Engine> engine(new Engine(setup));
  RankParts& parts = engine->parts_;
  HADAL_ASSIGN_OR_RETURN(engine->arena_, Arena::Allocate(parts.layout, device));
  if (setup.purpose == Purpose::kTraining) HADAL_RETURN_IF_ERROR(engine->arena_.MakeResident(setup.stream));
  HADAL_RETURN_IF_ERROR(parts.Bind(engine->arena_, engine->transfers(), engine->grid_, setup.timeout, engine->trace_));
  if (device != nullptr) engine->trace_.ShowTo(device->profiler(), engine->grid_.stage());
  return engine;
}

int64_t Engine::graph_bytes() const {
  return parts_.stage.graph_bytes() + (parts_.decoder ? parts_.decoder->graph_bytes() : 0);
}

void Engine::UseGraphs(bool use) {
  for (int c = 0; c < stage().chunks(); ++c) stage().chunk(c).UseGraphs(use);
}

std::span<const PackedBatch> Engine::ForKernels(std::span<const PackedBatch> batches) {
  if (stage().stream().device() == nullptr) return batches;
  padded_.resize(batches.size());
  for (size_t i = 0; i < batches.size(); ++i) {
    PadToBuckets(batches[i], pipeline_.capacity, pipeline_.bucket_rows, padded_[i]);
  }
  return padded_;
}

absl::StatusOr<StepResult> Engine::TrainingStep(std::span<const PackedBatch> batches, const StepScalars& scalars,
                                                const UpdateSettings& update) {
  HADAL_CHECK_EQ(static_cast<int>(batches.size()), pipeline_.step_micro_batches);
  HADAL_CHECK(scalars.training);
  const Stopwatch watch;
  const Share share = pipeline_.share();
  batches_ = ForKernels(batches.subspan(share.first, share.count));
  scalars_ = scalars;
  tail_.Begin(update, scalars.update);
  result_ = {};
  const Device* const device = stage().stream().device();
  const int64_t launches = device == nullptr ? 0 : device->launches();
  const Vector gradients = stage().parameters().AllGradients();
  stage().stream().Clear(gradients.data, gradients.size * int64_t{sizeof(float)});
  result_.times.optimizer_seconds += watch.Seconds();
  const TraceScope scope(&trace_, {.kind = TraceKind::kStep});
  HADAL_RETURN_IF_ERROR(parts_.reduction.Begin());
  HADAL_RETURN_IF_ERROR(Run(pipeline_.programs[grid_.stage()]));
  result_.seconds = watch.Seconds();
  if (device != nullptr) result_.times.launches = static_cast<double>(device->launches() - launches);
  return result_;
}

absl::StatusOr<LossSums> Engine::Evaluate(std::span<const PackedBatch> batches, const StepScalars& scalars,
                                          std::vector<float>* row_nll) {
  const Share share = ShareOf(static_cast<int>(batches.size()), pipeline_.grid.replicas, grid_.replica());
  batches_ = ForKernels(batches.subspan(share.first, share.count));
  scalars_ = scalars;
  scalars_.training = false;
  const TracePause pause(trace_);
  row_nll_ = row_nll;
  result_ = {};
  RankProgram program;
  if (share.count > 0) {
    ScheduleShape shape = pipeline_.shape;
    shape.micro_batches = share.count;
    HADAL_ASSIGN_OR_RETURN(program, MakeForwardSchedule(shape, grid_.stage()));
  }
  HADAL_RETURN_IF_ERROR(Run(program));
  row_nll_ = nullptr;
  std::vector<double> mine;
  for (const LossSums& sums : losses_) {
    mine.insert(mine.end(), {sums.loss, sums.nll, static_cast<double>(sums.tokens)});
  }
  // The head's ranks come in the order of their replicas, which is that of the batches.
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::vector<double>> all, collectives_.AllGather(mine, "evaluation"));
  LossSums total;
  for (const std::vector<double>& values : all) {
    for (size_t i = 0; i < values.size(); i += 3) {
      total.Add({values[i], values[i + 1], static_cast<int64_t>(values[i + 2])});
    }
  }
  return total;
}

absl::StatusOr<std::vector<ResidualProfile::Entry>> Engine::ProfileResidualStream(const PackedBatch& batch,
                                                                                  const StepScalars& scalars) {
  if (!IsProfiled(stage().plan())) return std::vector<ResidualProfile::Entry>();
  HADAL_CHECK(scalars.training);
  batches_ = ForKernels({&batch, 1});
  scalars_ = scalars;
  result_ = {};
  const TracePause pause(trace_);
  profile_.emplace(grid_.pipeline(), timeout_);
  if (grid_.replica() == 0) {
    ScheduleShape shape = pipeline_.shape;
    shape.micro_batches = 1;
    HADAL_ASSIGN_OR_RETURN(const RankProgram program, MakeForwardSchedule(shape, grid_.stage()));
    HADAL_RETURN_IF_ERROR(Run(program));
    HADAL_RETURN_IF_ERROR(profile_->Drain());
  }
  absl::StatusOr<std::vector<ResidualProfile::Entry>> entries =
      profile_->Share(stage().stream(), stage().parameters(), collectives_);
  profile_.reset();
  return entries;
}

absl::Status Engine::ShareWeights() {
  stage().parameters().RoundMasters(stage().stream());
  if (parts_.state.masters_are_spread()) {
    HADAL_RETURN_IF_ERROR(parts_.reduction.GatherWeights(stage().stream(), timeout_));
  }
  return parts_.tied.ShareWeights(stage().stream(), stage().parameters(), timeout_);
}

int Engine::RankBehind(int chunk, int chunks) const {
  const int stages = pipeline_.shape.stages;
  return (chunk * stages + grid_.stage() + chunks) % stages;
}

absl::Status Engine::Run(const RankProgram& program) { return WithdrawOnError(ExecuteAll(program), grid_.world()); }

absl::Status Engine::ExecuteAll(const RankProgram& program) {
  losses_.clear();
  HADAL_RETURN_IF_ERROR(parts_.channels.Begin(program));
  for (size_t i = 0; i < program.size(); ++i) {
    const TraceScope scope(&trace_, EventOf(program[i], pipeline_.shape, grid_.stage(), batches_));
    place_.Set(scalars_.step, i, program.size(), program[i]);
    const bool computes = IsCompute(program[i].operation);
    const double waited = computes ? run_queue_.Seconds() : 0;
    const absl::Status status = Execute(program[i]);
    // First what broke beside the computation: after that the instruction finds communication closed, and does not know
    // why.
    HADAL_RETURN_IF_ERROR(progress_status_);
    HADAL_RETURN_IF_ERROR(status);
    if (computes) result_.times.core_wait_seconds += run_queue_.Seconds() - waited;
  }
  const Stopwatch watch;
  const TraceScope scope(&trace_, {.kind = TraceKind::kDrain});
  HADAL_RETURN_IF_ERROR(parts_.channels.Drain(timeout_));
  result_.times.communication_seconds += watch.Seconds();
  stage().stream().Synchronize();  // translation may use the scratch now
  return absl::OkStatus();
}

absl::Status Engine::Execute(const Instruction& instruction) {
  const int c = instruction.chunk;
  const PackedBatch& batch = batches_[IsTail(instruction.operation) ? 0 : instruction.micro_batch];
  switch (instruction.operation) {
    case Operation::kReceiveForward:
      return Receive(*parts_.channels.chunk(c).receive_forward, batch);
    case Operation::kForward:
      return Forward(c, batch);
    case Operation::kSendForward:
      return SendForward(c, batch);
    case Operation::kReceiveBackward:
      return Receive(*parts_.channels.chunk(c).receive_backward, batch);
    case Operation::kBackward:
      return Backward(c, batch);
    case Operation::kSendBackward:
      return SendBackward(c, batch);
    case Operation::kReduceTiedGradients:
      return tail_.ReduceTiedGradients(result_);
    case Operation::kReduceOverReplicas:
      return tail_.ReduceOverReplicas(result_);
    case Operation::kGlobalNorm:
      return tail_.ComputeNorm(losses_, result_);
    case Operation::kOptimizerStep:
      tail_.Update(result_);
      return absl::OkStatus();
    case Operation::kGatherOverReplicas:
      return tail_.GatherOverReplicas(result_);
    case Operation::kShareTiedWeights:
      return tail_.ShareTiedWeights(result_);
  }
  HADAL_CHECK(false);  // no operation is left
}

absl::Status Engine::Receive(ReceiveChannel& channel, const PackedBatch& batch) {
  const Stopwatch watch;
  HADAL_RETURN_IF_ERROR(channel.Receive(stage().stream(), batch, scalars_.step, timeout_));
  result_.times.wait_seconds += watch.Seconds();
  return absl::OkStatus();
}

absl::Status Engine::Forward(int chunk, const PackedBatch& batch) {
  Channels::OfChunk& channels = parts_.channels.chunk(chunk);
  SublayerContext context = stage().Context(batch, scalars_, &progress_);
  context.observer = observer_;
  if (profile_) {
    context.profile = &profile_->profile();
    if (channels.receive_forward) HADAL_RETURN_IF_ERROR(profile_->Receive(RankBehind(chunk, -1)));
  }
  EdgeViews inputs;
  if (channels.receive_forward) inputs = channels.receive_forward->Front(batch);
  Vector row_nll;
  if (row_nll_ != nullptr && !channels.send_forward) {
    const int64_t rows = batch.sentence_target_rows();
    row_nll_->resize(row_nll_->size() + rows);
    row_nll = {row_nll_->data() + row_nll_->size() - rows, rows};
  }
  const LossSums loss = stage().chunk(chunk).Forward(context, inputs, row_nll, result_.times);
  if (!channels.send_forward) losses_.push_back(loss);
  if (profile_ && channels.send_forward) HADAL_RETURN_IF_ERROR(profile_->Send(RankBehind(chunk, 1)));
  if (channels.receive_forward) return channels.receive_forward->Release();
  return absl::OkStatus();
}

absl::Status Engine::Backward(int chunk, const PackedBatch& batch) {
  Channels::OfChunk& channels = parts_.channels.chunk(chunk);
  SublayerContext context = stage().Context(batch, scalars_, &progress_);
  context.observer = observer_;
  context.trace = &trace_;
  EdgeViews gradients;
  if (channels.receive_backward) gradients = channels.receive_backward->Front(batch);
  const bool is_last = &batch == &batches_.back();
  // Replicas start on what is complete: this micro-batch is launched in parts.
  if (is_last && pipeline_.grid.replicas > 1) context.complete = &complete_;
  stage().chunk(chunk).Backward(context, gradients, result_.times);
  const Stopwatch watch;
  if (is_last) Complete(pipeline_.first_sublayer(grid_.stage(), chunk));
  result_.times.communication_seconds += watch.Seconds();
  if (channels.receive_backward) return channels.receive_backward->Release();
  return absl::OkStatus();
}

absl::Status Engine::SendForward(int chunk, const PackedBatch& batch) {
  const Stopwatch watch;
  Chunk& sender = stage().chunk(chunk);
  EdgeViews edges;
  for (size_t i = 0; i < sender.output_edges().size(); ++i) edges.push_back(sender.output(i, batch));
  HADAL_RETURN_IF_ERROR(
      parts_.channels.chunk(chunk).send_forward->Send(stage().stream(), batch, scalars_.step, edges, timeout_));
  result_.times.communication_seconds += watch.Seconds();
  return absl::OkStatus();
}

absl::Status Engine::SendBackward(int chunk, const PackedBatch& batch) {
  const Stopwatch watch;
  Chunk& sender = stage().chunk(chunk);
  EdgeViews edges;
  for (size_t i = 0; i < sender.input_edges().size(); ++i) edges.push_back(sender.input_gradient(i, batch));
  HADAL_RETURN_IF_ERROR(
      parts_.channels.chunk(chunk).send_backward->Send(stage().stream(), batch, scalars_.step, edges, timeout_));
  result_.times.communication_seconds += watch.Seconds();
  return absl::OkStatus();
}

void Engine::Progress() {
  transfers().world().Progress();  // a communicator of devices moves the world's along
  if (!progress_status_.ok()) return;
  if (trace_.recording()) progress_status_ = parts_.channels.Poll(batches_, trace_);
  if (progress_status_.ok()) progress_status_ = parts_.reduction.Progress(stage().stream());
}

void Engine::Complete(int32_t first) {
  if (progress_status_.ok()) progress_status_ = parts_.reduction.Complete(stage().stream(), first);
}

}  // namespace hadal
