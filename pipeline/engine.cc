#include "pipeline/engine.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "pipeline/parameter_update.h"
#include "runtime/clock.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

using EdgeMatrices = absl::InlinedVector<ConstMatrix, 2>;

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
      return TraceKind::kBackward;
    case Operation::kReduceTiedGradients:
      return TraceKind::kTiedGradients;
    case Operation::kGlobalNorm:
      return TraceKind::kGlobalNorm;
    case Operation::kOptimizerStep:
      return TraceKind::kOptimizer;
    case Operation::kShareTiedWeights:
      return TraceKind::kTiedWeights;
  }
  return TraceKind::kStep;
}

}  // namespace

RankLayout::RankLayout(const ModelPlan& plan, const PipelinePlan& pipeline, int rank, const Stream& stream,
                       bool training)
    : stage_(plan, pipeline, rank, stream, training, layout_),
      channels_(plan, pipeline, rank, training, layout_),
      tied_(plan, pipeline, rank, layout_) {}

Engine::Engine(const ModelPlan& plan, const PipelinePlan& pipeline, const Stream& stream, bool training,
               Communicator& communicator, absl::Duration timeout)
    : plan_(plan),
      pipeline_(pipeline),
      communicator_(communicator),
      collectives_(communicator, timeout),
      timeout_(timeout),
      layout_(plan, pipeline, communicator.rank(), stream, training),
      norm_(plan, pipeline, communicator.rank()),
      progress_([this] {
        communicator_.Progress();
        if (trace_.recording()) layout_.channels_.Poll(trace_);
      }) {}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const ModelPlan& plan, const PipelinePlan& pipeline,
                                                       const Stream& stream, bool training, Communicator& communicator,
                                                       absl::Duration timeout) {
  std::unique_ptr<Engine> engine(new Engine(plan, pipeline, stream, training, communicator, timeout));
  HADAL_ASSIGN_OR_RETURN(engine->arena_, Arena::Allocate(engine->layout_.layout()));
  engine->layout_.stage_.Bind(engine->arena_);
  engine->layout_.channels_.Bind(engine->arena_, communicator);
  engine->layout_.tied_.Bind(engine->arena_, communicator);
  return engine;
}

absl::StatusOr<StepResult> Engine::TrainingStep(std::span<const PackedBatch> batches, const StepScalars& scalars,
                                                const UpdateSettings& update) {
  HADAL_CHECK_EQ(static_cast<int>(batches.size()), pipeline_.shape.micro_batches);
  HADAL_CHECK(scalars.training);
  const Stopwatch watch;
  batches_ = batches;
  scalars_ = scalars;
  update_ = update;
  result_ = {};
  const Vector gradients = stage().parameters().AllGradients();
  stage().stream().ForRanges(gradients.size, 1024, [&](int64_t begin, int64_t end) {
    std::memset(gradients.data + begin, 0, (end - begin) * sizeof(float));
  });
  const TraceScope scope(&trace_, {.kind = TraceKind::kStep});
  HADAL_RETURN_IF_ERROR(Run(pipeline_.programs[communicator_.rank()]));
  result_.seconds = watch.Seconds();
  return result_;
}

absl::StatusOr<LossSums> Engine::Evaluate(std::span<const PackedBatch> batches, const StepScalars& scalars,
                                          std::vector<float>* row_nll) {
  ScheduleShape shape = pipeline_.shape;
  shape.micro_batches = static_cast<int>(batches.size());
  HADAL_ASSIGN_OR_RETURN(const RankProgram program, MakeForwardSchedule(shape, communicator_.rank()));
  batches_ = batches;
  scalars_ = scalars;
  scalars_.training = false;
  const TracePause pause(trace_);
  row_nll_ = row_nll;
  result_ = {};
  HADAL_RETURN_IF_ERROR(Run(program));
  row_nll_ = nullptr;
  const double mine[] = {loss_.loss, loss_.nll, static_cast<double>(loss_.tokens)};
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::vector<double>> all, collectives_.AllGather(mine, "evaluation"));
  LossSums sums;
  for (const std::vector<double>& values : all) sums.Add({values[0], values[1], static_cast<int64_t>(values[2])});
  return sums;
}

absl::Status Engine::Run(const RankProgram& program) {
  loss_ = {};
  HADAL_RETURN_IF_ERROR(layout_.channels_.Begin(program));
  for (size_t i = 0; i < program.size(); ++i) {
    const double begin_seconds = trace_.Now();
    place_.Set(scalars_.step, i, program.size(), program[i]);
    HADAL_RETURN_IF_ERROR(Execute(program[i]));
    if (trace_.recording()) Trace(program[i], begin_seconds);
  }
  const Stopwatch watch;
  const TraceScope scope(&trace_, {.kind = TraceKind::kDrain});
  HADAL_RETURN_IF_ERROR(layout_.channels_.Drain(timeout_));
  result_.times.communication_seconds += watch.Seconds();
  return absl::OkStatus();
}

void Engine::Trace(const Instruction& instruction, double begin_seconds) {
  TraceEvent event{
      .kind = KindOf(instruction.operation), .begin_seconds = begin_seconds, .end_seconds = MonotonicSeconds()};
  if (!IsTail(instruction.operation)) {
    event.chunk = instruction.chunk;
    event.micro_batch = instruction.micro_batch;
  }
  if (IsSend(instruction.operation) || IsReceive(instruction.operation)) {
    event.channel = ChannelOf(pipeline_.shape, communicator_.rank(), instruction).number;
  }
  trace_.Add(event);
}

absl::Status Engine::Execute(const Instruction& instruction) {
  const int c = instruction.chunk;
  const PackedBatch& batch = batches_[IsTail(instruction.operation) ? 0 : instruction.micro_batch];
  StageTimes& times = result_.times;
  const Stopwatch watch;
  switch (instruction.operation) {
    case Operation::kReceiveForward:
      return Receive(*layout_.channels_.chunk(c).receive_forward, batch);
    case Operation::kForward:
      return Forward(c, batch);
    case Operation::kSendForward:
      return SendForward(c, batch);
    case Operation::kReceiveBackward:
      return Receive(*layout_.channels_.chunk(c).receive_backward, batch);
    case Operation::kBackward:
      return Backward(c, batch);
    case Operation::kSendBackward:
      return SendBackward(c, batch);
    case Operation::kReduceTiedGradients:
      HADAL_RETURN_IF_ERROR(layout_.tied_.ReduceGradients(stage().parameters(), timeout_));
      times.communication_seconds += watch.Seconds();
      return absl::OkStatus();
    case Operation::kGlobalNorm:
      return ComputeNorm();
    case Operation::kOptimizerStep:
      if (result_.applied) {
        UpdateParameters(stage().stream(), stage().parameters(),
                         {.optimizer = update_.optimizer,
                          .learning_rate = update_.learning_rate,
                          .gradient_norm = result_.gradient.norm,
                          .update = scalars_.update});
      }
      times.optimizer_seconds += watch.Seconds();
      return absl::OkStatus();
    case Operation::kShareTiedWeights:
      if (result_.applied) HADAL_RETURN_IF_ERROR(ShareTiedWeights());
      times.communication_seconds += watch.Seconds();
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status Engine::Receive(ReceiveChannel& channel, const PackedBatch& batch) {
  const Stopwatch watch;
  HADAL_RETURN_IF_ERROR(channel.Receive(batch, scalars_.step, timeout_));
  result_.times.wait_seconds += watch.Seconds();
  return absl::OkStatus();
}

absl::Status Engine::Forward(int chunk, const PackedBatch& batch) {
  Channels::OfChunk& channels = layout_.channels_.chunk(chunk);
  SublayerContext context = stage().Context(batch, scalars_, &progress_);
  EdgeViews inputs;
  if (channels.receive_forward) inputs = channels.receive_forward->Front(batch);
  Vector row_nll;
  if (row_nll_ != nullptr && !channels.send_forward) {
    row_nll_->resize(row_nll_->size() + batch.target_rows());
    row_nll = {row_nll_->data() + row_nll_->size() - batch.target_rows(), batch.target_rows()};
  }
  loss_.Add(stage().chunk(chunk).Forward(context, inputs, row_nll, result_.times));
  if (channels.receive_forward) return channels.receive_forward->Release();
  return absl::OkStatus();
}

absl::Status Engine::Backward(int chunk, const PackedBatch& batch) {
  Channels::OfChunk& channels = layout_.channels_.chunk(chunk);
  SublayerContext context = stage().Context(batch, scalars_, &progress_);
  context.trace = &trace_;
  EdgeViews gradients;
  if (channels.receive_backward) gradients = channels.receive_backward->Front(batch);
  stage().chunk(chunk).Backward(context, gradients, result_.times);
  if (channels.receive_backward) return channels.receive_backward->Release();
  return absl::OkStatus();
}

absl::Status Engine::SendForward(int chunk, const PackedBatch& batch) {
  const Stopwatch watch;
  Chunk& sender = stage().chunk(chunk);
  EdgeMatrices edges;
  for (size_t i = 0; i < sender.output_edges().size(); ++i) edges.push_back(sender.output(i, batch));
  HADAL_RETURN_IF_ERROR(layout_.channels_.chunk(chunk).send_forward->Send(batch, scalars_.step, edges, timeout_));
  result_.times.communication_seconds += watch.Seconds();
  return absl::OkStatus();
}

absl::Status Engine::SendBackward(int chunk, const PackedBatch& batch) {
  const Stopwatch watch;
  Chunk& sender = stage().chunk(chunk);
  EdgeMatrices edges;
  for (size_t i = 0; i < sender.input_edges().size(); ++i) edges.push_back(sender.input_gradient(i, batch));
  HADAL_RETURN_IF_ERROR(layout_.channels_.chunk(chunk).send_backward->Send(batch, scalars_.step, edges, timeout_));
  result_.times.communication_seconds += watch.Seconds();
  return absl::OkStatus();
}

absl::Status Engine::ComputeNorm() {
  const Stopwatch watch;
  HADAL_ASSIGN_OR_RETURN(result_.gradient,
                         norm_.Compute(stage().stream(), stage().parameters(), loss_, update_.vote, collectives_));
  result_.applied = result_.gradient.finite;
  result_.times.communication_seconds += watch.Seconds();
  return absl::OkStatus();
}

}  // namespace hadal
