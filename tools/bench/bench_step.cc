#include "tools/bench/bench_step.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <ostream>
#include <utility>

#include "kernels/cpu/product.h"
#include "layers/parameter_store.h"
#include "pipeline/engine/engine.h"
#include "pipeline/engine/memory_fit.h"
#include "pipeline/exchange/parameter_broadcast.h"
#include "pipeline/layout/pipeline_layout.h"
#include "pipeline/layout/relu_masks.h"
#include "pipeline/stage/graph_cache.h"
#include "runtime/check.h"
#include "runtime/clock.h"
#include "runtime/machine.h"
#include "runtime/status_macros.h"
#include "tools/bench/bench_step_report.h"
#include "tools/bench/kernel_batch.h"

namespace hadal {

GemmLimit DeviceGemmLimit(cuda::LaunchDevice& device, std::vector<cuda::MatmulArgs> products) {
  HADAL_CHECK(!products.empty());
  GemmLimit limit{.ways = {"one launch a product"}};
  for (cuda::MatmulArgs& product : products) {
    product.queue = DeviceQueues::kMain;
    limit.flops += 2.0 * static_cast<double>(product.count * product.m * product.n * product.k);
  }
  const auto launch_all = [&device, products = std::move(products)] {
    for (const cuda::MatmulArgs& product : products) device.Multiply(product);
  };
  std::shared_ptr<DeviceGraph> graph;  // null: no memory for it
  if (device.FreeBytes() >= GraphCache::kKeepFreeBytes) {
    device.BeginCapture();
    launch_all();
    absl::StatusOr<std::unique_ptr<DeviceGraph>> recorded = device.EndCapture();
    if (recorded.ok()) {
      graph = *std::move(recorded);
      limit.ways.emplace_back("one graph");
    }
  }
  limit.run = [&device, launch_all, graph](size_t way) {
    HADAL_CHECK_LT(way, graph != nullptr ? 2u : 1u);
    device.Synchronize();
    const Stopwatch watch;
    if (way == 0) {
      launch_all();
    } else {
      device.Launch(*graph);
    }
    device.Synchronize();
    return watch.Seconds();
  };
  return limit;
}

GemmLimit HostGemmLimit(double flops, const Stream& stream) {
  return {.ways = {"multiply-adds in registers"}, .flops = flops, .run = [flops, stream](size_t way) {
            HADAL_CHECK_EQ(way, 0u);
            constexpr int64_t kRounds = 4'000'000;
            const Stopwatch watch;
            int64_t operations = 0;
            stream.Run([&](int thread) {
              const int64_t of_thread = cpu::MultiplyInRegisters(kRounds);
              if (thread == 0) operations = of_thread;
            });
            return flops / static_cast<double>(operations * stream.threads()) * watch.Seconds();
          }};
}

ModelOptions BenchModel(const BenchStepOptions& options) {
  ModelOptions model{.encoder_layers = options.encoder_layers,
                     .decoder_layers = options.decoder_layers,
                     .d_model = options.d_model,
                     .d_ff = options.d_ff > 0 ? options.d_ff : 4 * options.d_model,
                     .heads = options.heads,
                     .source_vocabulary = options.vocabulary,
                     .target_vocabulary = options.vocabulary,
                     .max_positions = std::max(16, 2 * options.length),
                     .dropout = options.dropout,
                     .attention_dropout = options.dropout,
                     .activation_dropout = options.dropout};
  ApplyResidualMethod(options.method, model);
  return model;
}

namespace {

constexpr absl::Duration kTimeout = absl::Minutes(30);
constexpr int kWarmUpSteps =
    2;  // with graphs, the first step of a shape launches kernels one by one, the second records
constexpr int kMostEagerSteps = 3;  // without graphs, for comparison

class StepBench {
 public:
  StepBench(const BenchStepOptions& options, Communicator& communicator, const Stream& stream)
      : options_(options),
        communicator_(communicator),
        collectives_(communicator, kTimeout),
        stream_(stream),
        plan_(ModelPlan::Make(BenchModel(options))) {
    plan_.compute_storage = options.compute_storage;
  }

  absl::StatusOr<BenchStepMeasurement> Measure() {
    HADAL_RETURN_IF_ERROR(Prepare());
    BenchStepMeasurement measured;
    Describe(measured);
    if (stream_.device() != nullptr) HADAL_RETURN_IF_ERROR(MeasureEagerSteps(measured));
    for (int i = 0; i < kWarmUpSteps; ++i) HADAL_RETURN_IF_ERROR(Step().status());
    HADAL_RETURN_IF_ERROR(MeasureMemory(measured));  // before the limit allocates its memory
    if (options_.limit) HADAL_RETURN_IF_ERROR(PrepareLimit(measured));
    for (int i = 0; i < options_.repeats; ++i) {
      HADAL_RETURN_IF_ERROR(MeasureStep(measured));
      for (size_t way = 0; way < measured.ways.size(); ++way) HADAL_RETURN_IF_ERROR(MeasureLimit(way, measured));
    }
    return measured;
  }

 private:
  absl::Status Prepare() {
    const BatchOptions size{
        .micro_batches = options_.micro_batches, .source_tokens = options_.tokens, .target_tokens = options_.tokens};
    plan_.relu_masks = HasReluMasks(plan_, CapacityOf(plan_.options, size), PipelineOptions().bucket_rows, stream_);
    HADAL_ASSIGN_OR_RETURN(pipeline_,
                           MakePipelineLayout(plan_, size,
                                              {.chunks = options_.chunks,
                                               .schedule = options_.schedule,
                                               .recompute_every = options_.recompute_every,
                                               .graphs = options_.graphs,
                                               .overlap_weight_gradients = options_.overlap_weight_gradients},
                                              communicator_.size()));
    HADAL_ASSIGN_OR_RETURN(engine_, Engine::Create({.plan = plan_,
                                                    .pipeline = pipeline_,
                                                    .stream = stream_,
                                                    .purpose = Purpose::kTraining,
                                                    .world = communicator_,
                                                    .timeout = kTimeout}));
    HADAL_RETURN_IF_ERROR(
        InitializeParameters(pipeline_, engine_->stage().parameters(), /*seed=*/1, stream_, communicator_, kTimeout));
    HADAL_RETURN_IF_ERROR(engine_->DistributeWeights());
    const BenchBatchOptions batch{.vocabulary = options_.vocabulary,
                                  .tokens = options_.tokens,
                                  .length = options_.length,
                                  .mixed_length = options_.mixed_length};
    for (int32_t m = 0; m < options_.micro_batches; ++m) batches_.push_back(RandomBatch(batch, m));
    return absl::OkStatus();
  }

  void Describe(BenchStepMeasurement& measured) const {
    measured.model = plan_.options;
    measured.parameters = plan_.ParameterElements();
    measured.ranks = pipeline_.shape.stages;
    measured.threads = stream_.threads();
    if (stream_.device() != nullptr) measured.device = stream_.device()->Name();
    measured.target_tokens = target_tokens();
    measured.flops = StepFlopsOf(plan_, batches_, options_.recompute_every > 0);
  }

  absl::StatusOr<StepResult> Step() {
    const StepScalars scalars{
        .seed = 1, .step = steps_, .update = steps_ + 1, .gradient_scale = 1.0f / static_cast<float>(target_tokens())};
    ++steps_;
    HADAL_RETURN_IF_ERROR(collectives_.Barrier("before a step"));
    HADAL_ASSIGN_OR_RETURN(
        const StepResult result,
        engine_->TrainingStep(batches_, scalars, {.optimizer = {.clip_norm = 1}, .learning_rate = 1e-5}));
    if (!result.applied) {
      return InvalidArgumentError("the loss or a gradient of step ", steps_, " is not finite (loss ",
                                  result.gradient.loss.loss, "); use a method that trains at this depth");
    }
    return result;
  }

  absl::StatusOr<std::vector<double>> Gather(double value) {
    const double mine[] = {value};
    HADAL_ASSIGN_OR_RETURN(const std::vector<std::vector<double>> all, collectives_.AllGather(mine, "a measurement"));
    std::vector<double> values;
    values.reserve(all.size());
    for (const std::vector<double>& of_rank : all) values.push_back(of_rank[0]);
    return values;
  }

  absl::StatusOr<double> Slowest(double seconds) {
    HADAL_ASSIGN_OR_RETURN(const std::vector<double> all, Gather(seconds));
    return *std::max_element(all.begin(), all.end());
  }

  // Also records the products of a step; with graphs they would not be visible.
  absl::Status MeasureEagerSteps(BenchStepMeasurement& measured) {
    auto& device = static_cast<cuda::LaunchDevice&>(*stream_.device());
    engine_->UseGraphs(false);
    HADAL_RETURN_IF_ERROR(Step().status());  // loads kernels, plans products
    device.NoteProducts(&products_);
    for (int i = 0; i < std::min(kMostEagerSteps, options_.repeats); ++i) {
      const absl::StatusOr<StepResult> result = Step();
      device.NoteProducts(nullptr);
      HADAL_RETURN_IF_ERROR(result.status());
      HADAL_ASSIGN_OR_RETURN(const double seconds, Slowest(result->seconds));
      measured.eager_seconds.push_back(seconds);
      HADAL_ASSIGN_OR_RETURN(measured.eager_launches, Gather(result->times.launches));
    }
    engine_->UseGraphs(true);
    return absl::OkStatus();
  }

  absl::Status MeasureStep(BenchStepMeasurement& measured) {
    HADAL_ASSIGN_OR_RETURN(const StepResult result, Step());
    HADAL_ASSIGN_OR_RETURN(const double slowest, Slowest(result.seconds));
    measured.step_seconds.push_back(slowest);
    const StageTimes& t = result.times;
    double parts[kStepParts] = {t.forward_seconds,
                                t.recompute_seconds,
                                t.backward_seconds,
                                t.wait_seconds,
                                t.communication_seconds,
                                t.optimizer_seconds,
                                0};
    parts[kStepParts - 1] = result.seconds - std::accumulate(parts, parts + kStepParts - 1, 0.0);
    for (int p = 0; p < kStepParts; ++p) {
      HADAL_ASSIGN_OR_RETURN(const std::vector<double> of_ranks, Gather(parts[p]));
      measured.parts[p].resize(of_ranks.size());
      for (size_t r = 0; r < of_ranks.size(); ++r) measured.parts[p][r].push_back(of_ranks[r]);
    }
    HADAL_ASSIGN_OR_RETURN(measured.launches, Gather(t.launches));
    return absl::OkStatus();
  }

  absl::Status PrepareLimit(BenchStepMeasurement& measured) {
    if (stream_.device() != nullptr) {
      limit_ = DeviceGemmLimit(static_cast<cuda::LaunchDevice&>(*stream_.device()), std::exchange(products_, {}));
    } else {
      limit_ = HostGemmLimit(measured.flops.executed() / communicator_.size(), stream_);
    }
    // A way is used only if all ranks have the memory for it.
    HADAL_ASSIGN_OR_RETURN(const std::vector<double> ways, Gather(static_cast<double>(limit_.ways.size())));
    measured.ways = limit_.ways;
    measured.ways.resize(static_cast<size_t>(*std::min_element(ways.begin(), ways.end())));
    measured.limit_seconds.resize(measured.ways.size());
    for (size_t way = 0; way < measured.ways.size(); ++way) limit_.run(way);
    HADAL_ASSIGN_OR_RETURN(const std::vector<double> flops, Gather(limit_.flops));
    measured.limit_flops = std::accumulate(flops.begin(), flops.end(), 0.0);
    return absl::OkStatus();
  }

  absl::Status MeasureLimit(size_t way, BenchStepMeasurement& measured) {
    HADAL_RETURN_IF_ERROR(collectives_.Barrier("before the GEMM limit"));
    HADAL_ASSIGN_OR_RETURN(const std::vector<double> all, Gather(limit_.run(way)));
    measured.limit_seconds[way].push_back(std::accumulate(all.begin(), all.end(), 0.0) / communicator_.size());
    return absl::OkStatus();
  }

  absl::Status MeasureMemory(BenchStepMeasurement& measured) {
    HADAL_ASSIGN_OR_RETURN(const std::vector<ArenaLayout> layouts, TrainingLayouts(plan_, pipeline_, stream_));
    HADAL_ASSIGN_OR_RETURN(measured.peak_rss_bytes, Gather(static_cast<double>(PeakResidentBytes())));
    HADAL_ASSIGN_OR_RETURN(measured.arena_bytes, Gather(static_cast<double>(engine_->arena_bytes())));
    HADAL_ASSIGN_OR_RETURN(measured.plan_bytes,
                           Gather(static_cast<double>(layouts[communicator_.rank()].total_bytes())));
    HADAL_ASSIGN_OR_RETURN(measured.graph_bytes, Gather(static_cast<double>(engine_->stage().graph_bytes())));
    return absl::OkStatus();
  }

  int64_t target_tokens() const { return int64_t{options_.tokens} * options_.micro_batches; }

  const BenchStepOptions& options_;
  Communicator& communicator_;
  Collectives collectives_;
  Stream stream_;
  ModelPlan plan_;
  PipelineLayout pipeline_;
  std::unique_ptr<Engine> engine_;
  std::vector<PackedBatch> batches_;
  std::vector<cuda::MatmulArgs> products_;  // of one step, on a device
  GemmLimit limit_;
  int64_t steps_ = 0;
};

}  // namespace

absl::Status RunBenchStep(const BenchStepOptions& options, Communicator& communicator, const Stream& stream,
                          std::ostream& out) {
  HADAL_RETURN_IF_ERROR(AsCommonError(ValidateModelOptions(BenchModel(options))));
  if (options.length > options.tokens) {
    return AsCommonError(InvalidArgumentError("--length ", options.length, " is more than --tokens ", options.tokens,
                                              ", the tokens of a micro-batch; give at most these"));
  }
  StepBench bench(options, communicator, stream);
  HADAL_ASSIGN_OR_RETURN(const BenchStepMeasurement measured, bench.Measure());
  if (communicator.rank() != 0) return absl::OkStatus();
  (options.json ? PrintBenchStepJson : PrintBenchStepText)(options, measured, out);
  return absl::OkStatus();
}

}  // namespace hadal
