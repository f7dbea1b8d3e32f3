#include "pipeline/engine/engine.h"

#include "absl/strings/str_cat.h"
#include "layers/device_support.h"
#include "pipeline/exchange/profile_relay.h"
#include "pipeline/layout/row_bucket.h"
#include "runtime/check.h"
#include "runtime/clock.h"
#include "runtime/status_macros.h"

namespace hadal {

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
  stage().stream().Synchronize();  // its time is not the first forward's
  result.times.optimizer_seconds += watch.Seconds();
  const TraceScope scope(&trace_, {.kind = TraceKind::kStep});
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
    mine.insert(mine.end(), {sums.loss, sums.nll, static_cast<double>(sums.tokens)});
  }
  // The head's ranks come in the order of their replicas, which is that of the batches.
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::vector<double>> all, collectives_.AllGather(mine, "evaluation"));
  LossSums total;
  if (of_batches != nullptr) of_batches->clear();
  for (const std::vector<double>& values : all) {
    for (size_t i = 0; i < values.size(); i += 3) {
      const LossSums sums{values[i], values[i + 1], static_cast<int64_t>(values[i + 2])};
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
