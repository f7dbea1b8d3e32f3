#include "tools/plan/layout_search.h"
#include "layers/purpose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "layers/method_presets.h"
#include "pipeline/engine/rank_parts.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/status_macros.h"
#include "tools/config/config_loading.h"
#include "tools/config/run_options.h"
#include "tools/plan/layout_estimate.h"
#include "tools/plan/roofline_costs.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

TrainOptions SmallRun(ResidualMethod method = ResidualMethod::kDeepNorm) {
  TrainOptions options;
  options.model = {.encoder_layers = 3,
                   .decoder_layers = 4,
                   .d_model = 64,
                   .d_ff = 256,
                   .heads = 4,
                   .source_vocabulary = 200,
                   .target_vocabulary = 200,
                   .max_positions = 64};
  ApplyResidualMethod(method, options.model);
  options.batch = {.micro_batches = 8, .source_tokens = 192, .target_tokens = 256};
  return options;
}

Machine SmallMachine(int nodes, int devices, double memory_mib) {
  return {.name = "test",
          .nodes = nodes,
          .devices_per_node = devices,
          .memory_bytes = static_cast<int64_t>(memory_mib * (1 << 20)),
          .precision = Precision::kBf16,
          .peak_flops = 1e12,
          .matmul_flops = 5e11,
          .attention_flops = 1e11,
          .matmul_units = 4,
          .matmul_tile = 32,
          .memory_bytes_per_second = 2e10,
          .kernel_seconds = 1e-6,
          .intra_node = {.bytes_per_second = 5e9, .latency_seconds = 2e-6},
          .inter_node = {.bytes_per_second = 2e8, .latency_seconds = 2e-5}};
}

std::unique_ptr<StepCosts> CostsOf(const Machine& machine) {
  auto costs = MakeRooflineCosts(machine);
  EXPECT_TRUE(costs.ok()) << costs.status();
  return *std::move(costs);
}

// Every candidate laid out and replayed.
double BestByTrying(const ModelPlan& model, const TrainOptions& options, const Machine& machine,
                    const StepCosts& costs) {
  const LayoutMachine layout_machine{costs, machine.devices_per_node, machine.precision, 1};
  LayoutEstimate estimate(model, layout_machine);
  double best = std::numeric_limits<double>::infinity();
  for (LayoutPrediction& candidate : LayoutCandidates(model, options, machine, {})) {
    if (candidate.pipeline.recompute_every > 0) {
      candidate.pipeline.recompute_every = estimate.BestSegment(candidate);
    }
    const auto exact = PredictLayout(model, candidate.batch, candidate.pipeline, layout_machine);
    EXPECT_TRUE(exact.ok()) << exact.status();
    if (exact->FullestBytes() <= machine.memory_bytes) best = std::min(best, exact->step_seconds);
  }
  return best;
}

TEST(LayoutSearch, FindsWhatTryingEveryLayoutFinds) {
  const std::pair<int, int> grids[] = {{1, 1}, {1, 4}, {2, 2}, {2, 4}, {3, 2}};
  for (const ResidualMethod method : {ResidualMethod::kDeepNorm, ResidualMethod::kPreLn, ResidualMethod::kB2t}) {
    const TrainOptions options = SmallRun(method);
    const ModelPlan model = ModelPlan::Make(options.model);
    for (const auto& [nodes, devices] : grids) {
      for (const double memory_mib : {1000.0, 6.0, 3.5}) {
        Machine machine = SmallMachine(nodes, devices, memory_mib);
        machine.overlap = memory_mib > 5;
        const auto costs = CostsOf(machine);
        const double best = BestByTrying(model, options, machine, *costs);
        const auto search = SearchLayouts(model, options, machine, *costs, 1, {});
        if (best == std::numeric_limits<double>::infinity()) {
          EXPECT_EQ(search.status().code(), absl::StatusCode::kResourceExhausted) << search.status();
          continue;
        }
        ASSERT_TRUE(search.ok()) << search.status();
        EXPECT_NEAR(search->best.front().step_seconds, best, 1e-9 * best) << nodes << " x " << devices;
        EXPECT_LE(search->best.front().FullestBytes(), machine.memory_bytes);
        EXPECT_LE(search->perfect_seconds, best);
        EXPECT_LE(search->roofline_seconds, best);
        EXPECT_NEAR(search->best.front().parts.sum(), best, 1e-9 * best);
        EXPECT_TRUE(std::is_sorted(search->best.begin(), search->best.end(),
                                   [](const auto& a, const auto& b) { return a.step_seconds < b.step_seconds; }));
      }
    }
  }
}

std::string Name(const LayoutPrediction& layout) {
  return absl::StrCat(layout.pipeline.stages, " stages x ", layout.pipeline.chunks, " chunks x ",
                      layout.pipeline.replicas, " replicas, ", ToString(layout.pipeline.schedule));
}

// Counted by hand, from what the header says: the searches above and BestByTrying share the list.
TEST(LayoutCandidates, AreAllLayoutsOfAllDevices) {
  const TrainOptions options = SmallRun();
  const ModelPlan model = ModelPlan::Make(options.model);
  const Machine machine = SmallMachine(1, 4, 1000);
  // 8 micro-batches on 4 devices, each with and without recompute: 4 stages of 1 (two schedules), 2, 3 and 4
  // chunks, 2 stages of 1, 2, 3, 4, 6 and 8 chunks and one stage of 1, both with and without sharding.
  EXPECT_EQ(LayoutCandidates(model, options, machine, {.vary_micro_batch = false}).size(), 10u + 28u + 8u);
  const std::vector<LayoutPrediction> all = LayoutCandidates(model, options, machine, {});
  EXPECT_EQ(all.size(), 3 * 46u + 38u + 10u) << "of 8, 16 and 4, of 2 and of 1 micro-batches";
  std::set<std::pair<int, int>> batches;  // micro-batches, tokens
  for (const LayoutPrediction& layout : all) {
    const PipelineOptions& pipeline = layout.pipeline;
    EXPECT_EQ(pipeline.stages * pipeline.replicas, 4) << Name(layout);
    EXPECT_EQ(pipeline.schedule == ScheduleKind::kInterleaved1F1B, pipeline.chunks > 1) << Name(layout);
    EXPECT_LE(pipeline.replicas, layout.batch.micro_batches) << Name(layout);
    EXPECT_EQ(layout.TargetTokens(), 8 * 256);
    EXPECT_EQ(layout.batch.source_tokens * layout.batch.micro_batches, 8 * 192);
    batches.emplace(layout.batch.micro_batches, layout.batch.target_tokens);
  }
  // Of 32 micro-batches one would be shorter than the longest sentence.
  EXPECT_THAT(batches, ElementsAre(Pair(1, 2048), Pair(2, 1024), Pair(4, 512), Pair(8, 256), Pair(16, 128)));
  std::set<int> replicas;
  for (const LayoutPrediction& layout : LayoutCandidates(model, options, SmallMachine(3, 2, 1000), {})) {
    replicas.insert(layout.pipeline.replicas);
  }
  EXPECT_THAT(replicas, ElementsAre(1, 2, 6)) << "3 would fill one node and a half";
}

TEST(LayoutSearch, ListsAsManyAsAreWantedAndTheyDiffer) {
  const TrainOptions options = SmallRun();
  const ModelPlan model = ModelPlan::Make(options.model);
  const Machine machine = SmallMachine(1, 4, 1000);
  const auto search = SearchLayouts(model, options, machine, *CostsOf(machine), 1, {.top = 3});
  ASSERT_TRUE(search.ok()) << search.status();
  std::set<std::tuple<int, int, int, int, bool>> shapes;
  for (const LayoutPrediction& layout : search->best) {
    shapes.emplace(layout.pipeline.stages, layout.pipeline.chunks, layout.pipeline.replicas, layout.batch.micro_batches,
                   layout.pipeline.recompute_every > 0);
  }
  EXPECT_EQ(shapes.size(), 3u);
  EXPECT_EQ(search->best.size(), 3u);
  EXPECT_EQ(search->candidates, 186);
}

TEST(StepOperations, AreSixAMultiplyAddOfTheForwardPass) {
  const TrainOptions options = SmallRun();
  const ModelPlan model = ModelPlan::Make(options.model);
  const std::vector<double> costs =
      SublayerCosts(model, CapacityOf(model.options, options.batch), kTypicalSentenceRows);
  const double forward = std::accumulate(costs.begin(), costs.end(), 0.0);
  EXPECT_DOUBLE_EQ(StepOperations(model, options.batch), 6 * forward * options.batch.micro_batches);
  EXPECT_GT(StepOperations(model, options.batch), 6.0 * 8 * 256 * 64 * 200);
}

// The factors by which the search trusts it.
TEST(LayoutEstimate, LiesNearTheExactBytes) {
  for (const ResidualMethod method : {ResidualMethod::kDeepNorm, ResidualMethod::kPreLn}) {
    TrainOptions options = SmallRun(method);
    options.model.encoder_layers = options.model.decoder_layers = 12;
    options.model.d_model = 128;
    ApplyResidualMethod(method, options.model);
    const ModelPlan model = ModelPlan::Make(options.model);
    for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
      Machine machine = SmallMachine(2, 4, 1000);
      machine.precision = precision;
      const auto costs = CostsOf(machine);
      const LayoutMachine layout_machine{*costs, machine.devices_per_node, machine.precision, 1};
      LayoutEstimate estimate(model, layout_machine);
      for (LayoutPrediction& candidate : LayoutCandidates(model, options, machine, {})) {
        const auto plan = MakePipelinePlan(model, candidate.batch, candidate.pipeline, candidate.ranks());
        ASSERT_TRUE(plan.ok()) << plan.status();
        candidate.stages = MemoryOfStages(model, *plan, layout_machine);
        const double exact = static_cast<double>(candidate.FullestBytes());
        const double estimated = static_cast<double>(estimate.Bytes(candidate, plan->borders));
        EXPECT_GT(exact, 0.7 * estimated) << Name(candidate);
        EXPECT_LT(exact, 1.5 * estimated) << Name(candidate);
      }
    }
  }
}

// Long micro-batches of a narrow model: one buffer of a border is 3% of a stage.
TEST(LayoutEstimate, CountsEveryBufferOfABorder) {
  TrainOptions options = SmallRun();
  options.model.encoder_layers = options.model.decoder_layers = 12;
  options.model.d_model = options.model.d_ff = 16;
  ApplyResidualMethod(ResidualMethod::kDeepNorm, options.model);
  options.batch = {.micro_batches = 8, .source_tokens = 8192, .target_tokens = 8192};
  const ModelPlan model = ModelPlan::Make(options.model);
  const Machine machine = SmallMachine(1, 4, 1000);
  const auto costs = CostsOf(machine);
  const LayoutMachine layout_machine{*costs, machine.devices_per_node, Precision::kFp32, 1};
  LayoutEstimate estimate(model, layout_machine);
  for (const int stages : {2, 4}) {
    for (const int sends : {1, 2}) {
      LayoutPrediction layout{.batch = options.batch};
      layout.pipeline = {.stages = stages, .outstanding_sends = sends, .recompute_every = 2};
      const auto plan = MakePipelinePlan(model, layout.batch, layout.pipeline, layout.ranks());
      ASSERT_TRUE(plan.ok()) << plan.status();
      layout.stages = MemoryOfStages(model, *plan, layout_machine);
      const double exact = static_cast<double>(layout.FullestBytes());
      const double estimated = static_cast<double>(estimate.Bytes(layout, plan->borders));
      EXPECT_NEAR(exact / estimated, 1, 0.035) << stages << " stages, " << sends << " outstanding sends";
    }
  }
}

// fp32: the bytes are the arena's, of the fullest replica.
TEST(MemoryOfStages, IsWhatTheFullestReplicaAllocates) {
  TrainOptions options = SmallRun();
  options.pipeline.stages = 2;
  options.pipeline.replicas = 2;
  const Machine machine = SmallMachine(1, 4, 1000);
  const auto costs = CostsOf(machine);
  const ModelPlan model = ModelPlan::Make(options.model);
  for (const int translated : {0, 1, 200}) {  // sentences at validations
    if (translated > 0) options.pipeline.decoder = {.sentences = translated};
    const auto plan = MakePipelinePlan(model, options.batch, options.pipeline, 4);
    ASSERT_TRUE(plan.ok());
    const std::vector<StageBytes> stages = MemoryOfStages(model, *plan, {*costs, 4, Precision::kFp32, 1});
    std::vector<int64_t> arena(2, 0);
    for (int rank = 0; rank < 4; ++rank) {
      const auto own = MakePipelinePlan(model, options.batch, options.pipeline, 4, rank);
      ASSERT_TRUE(own.ok());
      const RankParts parts(model, *own, own->grid.StageOf(rank), Stream::Cpu(1), Purpose::kTraining);
      int64_t& most = arena[own->grid.StageOf(rank)];
      most = std::max(most, parts.layout.total_bytes());
    }
    // Categories are rounded up to whole cache lines one by one.
    for (int stage = 0; stage < 2; ++stage) EXPECT_NEAR(stages[stage].total, arena[stage], 1024) << translated;
  }
}

// 18 bytes a parameter: master, gradient and two moments in fp32, and the weight in bf16.
TEST(MemoryOfStages, AGpuHolds18BytesAParameter) {
  TrainOptions options = SmallRun();
  options.pipeline.stages = 1;
  options.model.max_positions = 2;  // the table of positions is no parameter, but lies with the weights
  const ModelPlan model = ModelPlan::Make(options.model);
  const Machine machine = SmallMachine(1, 1, 1000);
  const auto costs = CostsOf(machine);
  const auto plan = MakePipelinePlan(model, options.batch, options.pipeline, 1);
  ASSERT_TRUE(plan.ok());
  const StageBytes stage = MemoryOfStages(model, *plan, {*costs, 1, Precision::kBf16, 1}).front();
  // The shared table has a gradient for each of its three uses.
  const int64_t table = int64_t{200} * 64;
  const double expected = 18.0 * static_cast<double>(model.ParameterElements()) + 2 * 4.0 * table;
  EXPECT_NEAR(static_cast<double>(stage.state), expected, 0.01 * expected);
}

// With replicas: what a bf16 run's fullest replica allocates, moments and masters of its slices alone.
TEST(MemoryOfStages, OfAGpuIsWhatTheFullestReplicaAllocates) {
  TrainOptions options = SmallRun();
  options.pipeline.stages = 2;
  options.pipeline.replicas = 3;
  const Machine machine = SmallMachine(1, 6, 1000);
  const auto costs = CostsOf(machine);
  ModelPlan model = ModelPlan::Make(options.model);
  for (const bool sharded : {true, false}) {
    options.pipeline.shard_optimizer_state = sharded;
    std::vector<int64_t> state(2, 0);
    model.compute_storage = Storage::kBFloat16;
    for (int rank = 0; rank < 6; ++rank) {
      const auto own = MakePipelinePlan(model, options.batch, options.pipeline, 6, rank);
      ASSERT_TRUE(own.ok()) << own.status();
      const RankParts parts(model, *own, own->grid.StageOf(rank), Stream::Cpu(1), Purpose::kTraining);
      int64_t bytes = 0;
      for (const ArenaLayout::Category& category : parts.layout.categories()) {
        const bool is_state =
            category.name == "weights" || category.name == "gradients" || category.name == "optimizer";
        if (is_state) bytes += category.bytes;
      }
      int64_t& most = state[own->grid.StageOf(rank)];
      most = std::max(most, bytes);
    }
    model.compute_storage = Storage::kFloat32;
    const auto plan = MakePipelinePlan(model, options.batch, options.pipeline, 6);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const std::vector<StageBytes> stages = MemoryOfStages(model, *plan, {*costs, 6, Precision::kBf16, 1});
    for (int stage = 0; stage < 2; ++stage) EXPECT_NEAR(stages[stage].state, state[stage], 1024) << sharded;
  }
}

TEST(LayoutSearch, RefusesWhatDoesNotFitAndSaysWhatWould) {
  TrainOptions options = SmallRun();
  options.model.encoder_layers = options.model.decoder_layers = 30;
  ApplyResidualMethod(ResidualMethod::kDeepNorm, options.model);
  const ModelPlan model = ModelPlan::Make(options.model);
  const Machine machine = SmallMachine(1, 2, 10);
  const auto costs = CostsOf(machine);
  const auto search = SearchLayouts(model, options, machine, *costs, 1, {});
  ASSERT_EQ(search.status().code(), absl::StatusCode::kResourceExhausted) << search.status();
  EXPECT_THAT(std::string(search.status().message()), HasSubstr("no layout of this run fits 2 device(s)"));
  EXPECT_THAT(std::string(search.status().message()), HasSubstr("nodes of 2 would fit it"));
  const Machine tiny = SmallMachine(1, 2, 0.1);
  const auto hopeless = SearchLayouts(model, options, tiny, *costs, 1, {});
  EXPECT_THAT(std::string(hopeless.status().message()), HasSubstr("smaller micro-batches"));
}

TEST(LayoutSearch, MoreDevicesThanMicroBatchesAndCutsAreRefused) {
  TrainOptions options = SmallRun();
  options.batch.micro_batches = 1;
  const ModelPlan model = ModelPlan::Make(options.model);
  const Machine machine = SmallMachine(64, 4, 1000);
  const auto search = SearchLayouts(model, options, machine, *CostsOf(machine), 1, {.vary_micro_batch = false});
  EXPECT_EQ(search.status().code(), absl::StatusCode::kInvalidArgument) << search.status();
}

// What is pasted behind the searched config is a config of that layout.
TEST(LayoutSearch, ItsArgumentsMakeTheLayout) {
  const std::string shipped = absl::StrCat(HADAL_CONFIGS, "/");
  const std::vector<std::string> files = {shipped + "base.textproto", shipped + "size/512.textproto",
                                          shipped + "depth/18.textproto"};
  const std::vector<std::string> before = {"data.train=nowhere", "pipeline.split=7", "pipeline.recompute_auto=true",
                                           "pipeline.memory_limit_bytes=1000000000"};
  const auto config = LoadConfig(files, before);
  ASSERT_TRUE(config.ok()) << config.status();
  const auto searched = MakeRunOptions(*config);
  ASSERT_TRUE(searched.ok()) << searched.status();
  TrainOptions options = searched->train;
  options.model.source_vocabulary = options.model.target_vocabulary = 8000;
  const ModelPlan model = ModelPlan::Make(options.model);
  const Machine machine = SmallMachine(2, 4, 4000);
  const auto search = SearchLayouts(model, options, machine, *CostsOf(machine), 1, {});
  ASSERT_TRUE(search.ok()) << search.status();
  for (const LayoutPrediction& layout : search->best) {
    const std::string arguments = LayoutArguments(layout, options);
    EXPECT_EQ(arguments.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.=- "), std::string::npos) << arguments;
    std::vector<std::string> overrides = before;
    for (const absl::string_view word : absl::StrSplit(arguments, ' ')) {
      if (word != "--set") overrides.emplace_back(word);
    }
    const auto pasted = LoadConfig(files, overrides);
    ASSERT_TRUE(pasted.ok()) << pasted.status();
    const auto run = MakeRunOptions(*pasted);
    ASSERT_TRUE(run.ok()) << run.status();
    const PipelineOptions& pipeline = run->train.pipeline;
    EXPECT_EQ(pipeline.stages, layout.pipeline.stages);
    EXPECT_EQ(pipeline.replicas, layout.pipeline.replicas);
    EXPECT_EQ(pipeline.chunks, layout.pipeline.chunks);
    EXPECT_EQ(pipeline.schedule, layout.pipeline.schedule);
    EXPECT_EQ(pipeline.recompute_every, layout.pipeline.recompute_every);
    EXPECT_EQ(pipeline.shard_optimizer_state, layout.pipeline.shard_optimizer_state);
    EXPECT_FALSE(pipeline.recompute_auto);
    EXPECT_THAT(pipeline.split, IsEmpty());
    EXPECT_EQ(run->train.batch.micro_batches, layout.batch.micro_batches);
    EXPECT_EQ(run->train.batch.source_tokens, layout.batch.source_tokens);
    EXPECT_EQ(run->train.batch.target_tokens, layout.batch.target_tokens);
  }
}

// The largest question people ask: 512 devices, 2,500 sublayers.
TEST(LayoutSearch, AnswersFor64NodesOf8) {
  TrainOptions options = SmallRun();
  options.model.encoder_layers = options.model.decoder_layers = 500;
  options.model.d_model = 512;
  options.model.d_ff = 2048;
  options.model.heads = 8;
  options.batch = {.micro_batches = 128, .source_tokens = 4096, .target_tokens = 4096};
  options.stop.steps = 1000;
  ApplyResidualMethod(ResidualMethod::kDeepNorm, options.model);
  const ModelPlan model = ModelPlan::Make(options.model);
  const absl::StatusOr<Machine> description =
      LoadMachine(absl::StrCat(HADAL_CONFIGS, "/machines/a100_80g_8.textproto"));
  ASSERT_TRUE(description.ok()) << description.status();
  Machine machine = *description;
  machine.nodes = 64;
  const auto costs = CostsOf(machine);
  const auto search = SearchLayouts(model, options, machine, *costs, 1, {.top = 1});
  ASSERT_TRUE(search.ok()) << search.status();
  const LayoutPrediction& best = search->best.front();
  EXPECT_EQ(best.ranks(), 512);
  EXPECT_EQ(best.TargetTokens(), 128 * 4096);
  EXPECT_LE(best.FullestBytes(), machine.memory_bytes);
  EXPECT_LT(search->replayed, search->candidates / 4) << "most are never laid out";
  const SearchText about{model, options, machine, *costs};
  EXPECT_THAT(LayoutSearchToText(*search, about), HasSubstr("a prediction"));
  EXPECT_EQ(nlohmann::json::parse(LayoutSearchToJson(*search, about))["layouts"][0]["stage_bytes"].size(),
            static_cast<size_t>(best.pipeline.stages));
}

}  // namespace
}  // namespace hadal
