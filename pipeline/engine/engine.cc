#include "pipeline/engine/engine.h"

#include "layers/device_support.h"
#include "pipeline/exchange/profile_relay.h"
#include "pipeline/layout/row_bucket.h"
#include "pipeline/layout/slice_ownership.h"
#include "runtime/check.h"
#include "runtime/clock.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr RecomputeRun kEachByItself[] = {{.first = 0, .length = 1}};

// The least divisor of `slots` that is not below `needed`.
int32_t DivisorFrom(int32_t needed, int32_t slots) {
  while (slots % needed != 0) ++needed;
  return needed;
}

}  // namespace

Stage::Stage(const ModelPlan& plan, const PipelineLayout& pipeline, int rank, const Stream& stream, Purpose purpose,
             ArenaLayout& layout)
    : plan_(plan),
      stream_(stream),
      parameters_(plan, pipeline.SublayersOf(rank), purpose, layout, UpdatedSlices(plan, pipeline, rank)),
      workspace_(plan, pipeline.capacity, stream, purpose, layout, pipeline.overlap_weight_gradients),
      shared_(plan, pipeline.capacity, purpose, layout) {
  const bool trains = purpose == Purpose::kTraining;
  for (int c = 0; c < pipeline.shape.chunks; ++c) {
    const int chunk = pipeline.shape.GlobalChunk(rank, c), next = chunk + pipeline.shape.stages;
    const auto known = [&](int in_front) { return KnownInFrontOf(plan, pipeline, in_front); };
    // Every schedule runs a chunk for S micro-batches before the rank's next chunk, which may need a history of each.
    const int needed = known(next) > 0 ? pipeline.shape.stages : 1;
    const int32_t slots = std::max(trains ? pipeline.peak_live[rank][c] : 1, needed);
    const int64_t known_inputs = known(chunk);
    const ChunkSpec spec{.first = pipeline.first_sublayer(rank, c),
                         .last = pipeline.last_sublayer(rank, c),
                         .slots = slots,
                         .input_slots = trains ? DivisorFrom(pipeline.peak_input[rank][c], slots) : 1,
                         .pending_slots = trains ? pipeline.pending_slots(rank, c) : 0,
                         .recompute = trains ? std::span(pipeline.recompute) : kEachByItself,
                         .purpose = purpose,
                         .on_device = stream.kind() != DeviceKind::kCpu,
                         .graphs = pipeline.graphs,
                         .forks = pipeline.overlap_weight_gradients && trains && stream.kind() != DeviceKind::kCpu,
                         .replicas = pipeline.grid.replicas,
                         .inputs_on_device = pipeline.device_transfers,
                         .known_inputs = known_inputs,
                         .known_outputs = known(chunk + 1),
                         .before = known_inputs > 0 ? chunks_.back().get() : nullptr};
    chunks_.push_back(std::make_unique<Chunk>(plan, spec, pipeline.capacity, shared_, layout));
  }
  shared_.ReserveRequired(trains ? pipeline.peak_pending[rank] : 0, layout);
}

int64_t Stage::graph_bytes() const {
  int64_t bytes = 0;
  for (const std::unique_ptr<Chunk>& chunk : chunks_)
    bytes += chunk->graphs() == nullptr ? 0 : chunk->graphs()->bytes();
  return bytes;
}

absl::Status Stage::Bind(const Arena& arena) {
  parameters_.Bind(arena);
  workspace_.Bind(arena);
  shared_.Bind(arena);
  for (std::unique_ptr<Chunk>& chunk : chunks_) chunk->Bind(arena);
  return workspace_.Fork(arena);
}

RankParts::RankParts(const ModelPlan& plan, const PipelineLayout& pipeline, int stage, const Stream& stream,
                     Purpose purpose, int64_t gap_bytes)
    : layout(stream.kind(), gap_bytes),
      stage(plan, pipeline, stage, stream, purpose, layout),
      state(plan, pipeline, stage, purpose, layout),
      groups(pipeline, this->stage.parameters(), purpose, layout),
      channels(plan, pipeline, stage, purpose, layout),
      tied(plan, pipeline, stage, stream, layout),
      reduction(pipeline, state, stream, purpose, layout) {
  if (purpose == Purpose::kTraining && pipeline.decoder) {
    layout.BeginProgram();
    decoder.emplace(plan, pipeline, stage, *pipeline.decoder, pipeline.decode_capacity, stream, layout);
  }
}

absl::Status RankParts::Bind(const Arena& arena, ProcessGrid& transfers, ProcessGrid& host, absl::Duration timeout,
                             TraceBuffer& trace) {
  HADAL_RETURN_IF_ERROR(stage.Bind(arena));
  state.Bind(arena, stage.parameters());
  groups.Bind(arena);
  channels.Bind(arena, transfers.pipeline());
  tied.Bind(arena, transfers.pipeline());
  HADAL_RETURN_IF_ERROR(reduction.Bind(arena, state, transfers.replicas(), trace));
  HADAL_RETURN_IF_ERROR(transfers.world().Reserve(channels.transfers() + TiedTables::kUnderWay));
  if (decoder) decoder->Bind(arena, host.pipeline(), timeout);
  return absl::OkStatus();
}

Engine::Engine(const EngineSetup& setup)
    : pipeline_(setup.pipeline),
      grid_(setup.world, setup.pipeline.grid),
      collectives_(setup.world, setup.timeout),
      timeout_(setup.timeout),
      parts_(setup.plan, setup.pipeline, grid_.stage(), setup.stream, setup.purpose, setup.arena_gap_bytes),
      tail_(setup.plan, setup.pipeline, parts_, collectives_, setup.timeout),
      executor_({.pipeline = setup.pipeline,
                 .stage = grid_.stage(),
                 .parts = parts_,
                 .tail = tail_,
                 .world = setup.world,
                 .transfers = setup.device_communicator != nullptr ? *setup.device_communicator : setup.world,
                 .trace = trace_,
                 .timeout = setup.timeout}) {
  HADAL_CHECK_EQ(grid_.replica(), pipeline_.replica);
  HADAL_CHECK_EQ(setup.device_communicator != nullptr, pipeline_.device_transfers);
  if (setup.device_communicator != nullptr) device_grid_.emplace(*setup.device_communicator, pipeline_.grid);
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineSetup& setup) {
  Device* const device = setup.stream.device();
  if (device != nullptr) {
    HADAL_RETURN_IF_ERROR(CheckDeviceSupport(setup.plan));
  } else if (setup.plan.compute_storage != Storage::kFloat32) {
    return InvalidArgumentError("device.precision: bf16 needs a GPU, and rank ", setup.world.rank(),
                                " computes on the CPU; take fp32, or auto");
  }
  std::unique_ptr<Engine> engine(new Engine(setup));
  RankParts& parts = engine->parts_;
  HADAL_ASSIGN_OR_RETURN(engine->arena_, Arena::Allocate(parts.layout, device));
  if (setup.purpose == Purpose::kTraining) HADAL_RETURN_IF_ERROR(engine->arena_.MakeResident(setup.stream));
  HADAL_RETURN_IF_ERROR(parts.Bind(engine->arena_, engine->transfers(), engine->grid_, setup.timeout, engine->trace_));
  HADAL_RETURN_IF_ERROR(engine->executor_.Prepare());
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
  const ProgramInputs inputs{
      .batches = ForKernels(batches.subspan(share.first, share.count)), .scalars = scalars, .observer = observer_};
  tail_.Begin(update, scalars.update);
  StepResult result;
  const Device* const device = stage().stream().device();
  const int64_t launches = device == nullptr ? 0 : device->launches();
  const Vector gradients = stage().parameters().AllGradients();
  stage().stream().Clear(gradients.data, gradients.size * int64_t{sizeof(float)});
  stage().stream().Synchronize();  // so that clearing is not timed as forward
  result.times.optimizer_seconds += watch.Seconds();
  const TraceScope scope(&trace_, {.kind = TraceKind::kStep});
  parts_.groups.Begin();
  HADAL_RETURN_IF_ERROR(parts_.reduction.Begin());
  HADAL_RETURN_IF_ERROR(executor_.Run(pipeline_.programs[grid_.stage()], inputs, result));
  result.seconds = watch.Seconds();
  if (device != nullptr) result.times.launches = static_cast<double>(device->launches() - launches);
  return result;
}

absl::StatusOr<LossSums> Engine::Evaluate(std::span<const PackedBatch> batches, const StepScalars& scalars,
                                          std::vector<float>* row_nll, std::vector<LossSums>* of_batches) {
  const Share share = ShareOf(static_cast<int>(batches.size()), pipeline_.grid.replicas, grid_.replica());
  ProgramInputs inputs{.batches = ForKernels(batches.subspan(share.first, share.count)),
                       .scalars = scalars,
                       .observer = observer_,
                       .row_nll = row_nll};
  inputs.scalars.training = false;
  const TracePause pause(trace_);
  RankProgram program;
  if (share.count > 0) {
    ScheduleShape shape = pipeline_.shape;
    shape.micro_batches = share.count;
    HADAL_ASSIGN_OR_RETURN(program, MakeForwardSchedule(shape, grid_.stage()));
  }
  StepResult result;
  HADAL_RETURN_IF_ERROR(executor_.Run(program, inputs, result));
  std::vector<double> mine;
  for (const LossSums& sums : executor_.losses()) {
    mine.insert(mine.end(), {sums.loss, sums.nll, static_cast<double>(sums.tokens), static_cast<double>(sums.hits)});
  }
  // The head's ranks come in the order of their replicas, which is that of the batches.
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::vector<double>> all, collectives_.AllGather(mine, "evaluation"));
  LossSums total;
  if (of_batches != nullptr) of_batches->clear();
  for (const std::vector<double>& values : all) {
    for (size_t i = 0; i < values.size(); i += 4) {
      const LossSums sums{values[i], values[i + 1], static_cast<int64_t>(values[i + 2]),
                          static_cast<int64_t>(values[i + 3])};
      total.Add(sums);
      if (of_batches != nullptr) of_batches->push_back(sums);
    }
  }
  return total;
}

absl::StatusOr<std::vector<ResidualProfile::Entry>> Engine::ProfileResidualStream(const PackedBatch& batch,
                                                                                  const StepScalars& scalars) {
  if (!IsProfiled(stage().plan())) return std::vector<ResidualProfile::Entry>();
  HADAL_CHECK(scalars.training);
  ProfileRelay profile(grid_.pipeline(), timeout_, stage().stream(), stage().parameters());
  const ProgramInputs inputs{.batches = ForKernels({&batch, 1}), .scalars = scalars, .profile = &profile};
  const TracePause pause(trace_);
  if (grid_.replica() == 0) {
    ScheduleShape shape = pipeline_.shape;
    shape.micro_batches = 1;
    HADAL_ASSIGN_OR_RETURN(const RankProgram program, MakeForwardSchedule(shape, grid_.stage()));
    StepResult result;
    HADAL_RETURN_IF_ERROR(executor_.Run(program, inputs, result));
    HADAL_RETURN_IF_ERROR(profile.Drain());
  }
  return profile.Gather(collectives_);
}

absl::Status Engine::DistributeWeights() {
  stage().parameters().RoundMasters(stage().stream());
  if (parts_.state.masters_are_spread()) {
    HADAL_RETURN_IF_ERROR(parts_.reduction.GatherWeights(stage().stream(), timeout_));
  }
  return parts_.tied.DistributeWeights(stage().stream(), stage().parameters(), timeout_);
}

}  // namespace hadal
