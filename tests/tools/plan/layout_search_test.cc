#include "tools/plan/layout_search.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "kernels/cuda_host/own_memory.h"
#include "layers/method_presets.h"
#include "pipeline/engine/memory_fit.h"
#include "pipeline/layout/sum_tree.h"
#include "tests/support/tiny_plan.h"
#include "tools/config/config_loading.h"
#include "tools/config/run_options.h"
#include "tools/plan/cost_files.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

TrainOptions SmallRun(ResidualMethod method = ResidualMethod::kDeepNorm) {
  TrainOptions options;
  options.model = TinyModel({.encoder_layers = 3,
                             .decoder_layers = 4,
                             .d_model = 64,
                             .d_ff = 256,
                             .heads = 4,
                             .vocabulary = 200,
                             .max_positions = 64});
  ApplyResidualMethod(method, options.model);
  options.batch = {.micro_batches = 8, .source_tokens = 192, .target_tokens = 256};
  return options;
}

// The driver's memory is reserved; the rest is `memory_bytes`.
Machine SmallMachine(int nodes, int devices, int64_t memory_bytes = int64_t{1} << 40) {
  return {.name = "test",
          .nodes = nodes,
          .devices_per_node = devices,
          .memory_bytes = memory_bytes,
          .reserved_bytes = int64_t{1} << 40,
          .precision = Precision::kBf16,
          .peak_flops = 1e12,
          .matmul_flops = 5e11,
          .attention_flops = 1e11,
          .matmul_units = 4,
          .matmul_tile = 32,
          .memory_bytes_per_second = 2e10,
          .kernel_seconds = 1e-6,
          .gap_seconds = 2e-5,
          .call_seconds = 3e-6,
          .intra_node = {.bytes_per_second = 5e9, .latency_seconds = 2e-6},
          .inter_node = {.bytes_per_second = 2e8, .latency_seconds = 2e-5}};
}

std::unique_ptr<StepCosts> CostsOf(const Machine& machine) { return MakeRooflineCosts(machine).value(); }

struct Tried {
  LayoutPrediction layout;
  int64_t bytes = 0;  // of the fullest rank, where it is the fewest
};

// The layout with recomputation within `limit`, if it is to be found.
PipelineLayout LaidOut(const ModelPlan& model, const Machine& machine, const LayoutPrediction& layout, int64_t limit) {
  PipelineOptions options = layout.pipeline;
  if (options.recompute_every == kAnyLength) options.recompute_every = 1;
  const auto make = [&](const std::vector<int32_t>& borders) {
    if (!borders.empty()) options.split.assign(borders.begin() + 1, borders.end() - 1);
    return MakePipelineLayout(model, layout.batch, options, layout.ranks(), 0,
                              PlannedResources(options, layout.ranks(), machine.device()));
  };
  PipelineLayout pipeline = make({}).value();
  if (layout.pipeline.recompute_every == kAnyLength) {
    RecomputeToFit(model, limit, Stream::ForLayouts(machine.device(), 1), pipeline, make);
  }
  return pipeline;
}

int64_t FullestBytes(const ModelPlan& model, const Machine& machine, const PipelineLayout& pipeline) {
  int64_t fullest = 0;
  for (const ArenaLayout& layout : TrainingLayouts(model, pipeline, Stream::ForLayouts(machine.device(), 1)).value()) {
    fullest = std::max(fullest, LimitedBytes(layout, machine.device()));
  }
  return fullest;
}

// Every candidate laid out.
std::vector<Tried> TryAll(const ModelPlan& model, const TrainOptions& options, const Machine& machine) {
  std::vector<Tried> all;
  for (const LayoutPrediction& candidate : LayoutCandidates(model, options, machine, {})) {
    all.push_back({candidate, FullestBytes(model, machine, LaidOut(model, machine, candidate, 0))});
  }
  return all;
}

// The time of the fastest of those that fit, replayed; infinity if none does.
double BestOf(const std::vector<Tried>& all, const ModelPlan& model, const Machine& machine, const StepCosts& costs) {
  double best = std::numeric_limits<double>::infinity();
  for (const auto& [layout, bytes] : all) {
    const PipelineLayout plan = LaidOut(model, machine, layout, machine.memory_bytes);
    if (FullestBytes(model, machine, plan) > machine.memory_bytes) continue;
    const auto exact = PredictLayout(model, layout.batch, plan, {costs, machine.devices_per_node}).value();
    best = std::min(best, exact.step_seconds);
  }
  return best;
}

TEST(LayoutSearch, FindsWhatTryingEveryLayoutFinds) {
  const std::pair<int, int> grids[] = {{1, 1}, {1, 4}, {2, 2}, {2, 4}, {3, 2}};
  for (const ResidualMethod method : {ResidualMethod::kDeepNorm, ResidualMethod::kPreLn, ResidualMethod::kB2t}) {
    const TrainOptions options = SmallRun(method);
    for (const auto& [nodes, devices] : grids) {
      Machine machine = SmallMachine(nodes, devices);
      const ModelPlan model = PlannedModel(options, machine.device());
      std::vector<Tried> all = TryAll(model, options, machine);
      std::ranges::sort(all, {}, &Tried::bytes);
      for (const int64_t limit : {all.back().bytes, all[all.size() / 3].bytes, all[0].bytes, all[0].bytes - 1}) {
        machine.memory_bytes = limit;
        machine.overlap = limit > all[0].bytes;
        const auto costs = CostsOf(machine);
        const double best = BestOf(all, model, machine, *costs);
        const auto search = SearchLayouts(options, machine, *costs, 1, {});
        if (best == std::numeric_limits<double>::infinity()) {
          EXPECT_EQ(search.status().code(), absl::StatusCode::kResourceExhausted) << search.status();
          continue;
        }
        ASSERT_TRUE(search.ok()) << search.status();
        const LayoutPrediction& found = *search->best.front().prediction;
        EXPECT_NEAR(found.step_seconds, best, 1e-9 * best) << nodes << " x " << devices;
        EXPECT_LE(search->perfect_seconds, best);
        EXPECT_LE(search->roofline_seconds, best);
        EXPECT_NEAR(found.parts.sum(), best, 1e-9 * best);
        EXPECT_TRUE(std::ranges::is_sorted(search->best, {}, &PlanReport::step_seconds));
        for (const PlanReport& report : search->best) EXPECT_LE(report.FullestBytes(), limit);
      }
    }
  }
}

// Where the backward is split, a step of fewer micro-batches than stages takes less than one micro-batch's whole work.
TEST(LayoutSearch, OfOneMicroBatchTheListAscends) {
  TrainOptions options = SmallRun();
  options.model.encoder_layers = options.model.decoder_layers = 6;
  options.batch = {.micro_batches = 1, .source_tokens = 512, .target_tokens = 512};
  Machine machine = SmallMachine(1, 8);
  machine.peak_flops = machine.matmul_flops = machine.attention_flops = 1e15;
  machine.memory_bytes_per_second = 3e12;
  machine.kernel_seconds = 2e-5;
  machine.gap_seconds = machine.call_seconds = 0;
  machine.intra_node = {.bytes_per_second = 4e11, .latency_seconds = 0};
  const auto costs = CostsOf(machine);
  const auto search =
      SearchLayouts(options, machine, *costs, 1, {.top = 3, .kept = {.replicas = true, .recompute_every = true}})
          .value();
  EXPECT_TRUE(std::ranges::is_sorted(search.best, {}, &PlanReport::step_seconds));
}

// What the driver needs and the description does not reserve is not the layout's.
TEST(LayoutSearch, LeavesRoomForTheDriver) {
  const TrainOptions options = SmallRun();
  Machine machine = SmallMachine(1, 4);
  const auto costs = CostsOf(machine);
  const auto free = SearchLayouts(options, machine, *costs, 1, {.top = 1}).value();
  const PlanReport& best = free.best.front();
  machine.reserved_bytes = 1000;
  machine.memory_bytes = best.FullestBytes() + DriverBytes(best.model, best.pipeline) - 1000;
  const auto fits = SearchLayouts(options, machine, *costs, 1, {.top = 1}).value();
  EXPECT_EQ(fits.best.front().step_seconds, best.step_seconds);
  --machine.memory_bytes;
  const auto other = SearchLayouts(options, machine, *costs, 1, {.top = 1});
  EXPECT_TRUE(!other.ok() || other->best.front().step_seconds > best.step_seconds);
}

std::string Name(const LayoutPrediction& layout) {
  return absl::StrCat(layout.pipeline.stages, " stages x ", layout.pipeline.chunks, " chunks x ",
                      layout.pipeline.replicas, " replicas, ", ToString(layout.pipeline.schedule));
}

// Counted by hand, from what the header says: the searches above and BestByTrying share the list.
TEST(LayoutCandidates, AreAllLayoutsOfAllDevices) {
  const TrainOptions options = SmallRun();
  const ModelPlan model = ModelPlan::Make(options.model);
  const Machine machine = SmallMachine(1, 4);
  // 8 micro-batches on 4 devices: 4 stages of 1 (four schedules), 2, 3 and 4 chunks (three), 2 stages of 1, 2, 3, 4, 6
  // and 8 chunks and one stage of 1 (two), both with and without sharding.
  EXPECT_EQ(LayoutCandidates(model, options, machine, {.batch = true}).size(), 13u + 38u + 4u);
  const std::vector<LayoutPrediction> all = LayoutCandidates(model, options, machine, {});
  EXPECT_EQ(all.size(), 3 * 55u + 51u + 13u) << "of 8, 16 and 4, of 2 and of 1 micro-batches";
  std::set<std::pair<int, int>> batches;  // micro-batches, tokens
  for (const LayoutPrediction& layout : all) {
    const PipelineOptions& pipeline = layout.pipeline;
    EXPECT_EQ(pipeline.stages * pipeline.replicas, 4) << Name(layout);
    EXPECT_EQ(absl::StartsWith(ToString(pipeline.schedule), "interleaved"), pipeline.chunks > 1) << Name(layout);
    EXPECT_TRUE(pipeline.stages > 1 || !SplitsBackward(pipeline.schedule)) << Name(layout);
    EXPECT_LE(pipeline.replicas, layout.batch.micro_batches) << Name(layout);
    EXPECT_EQ(layout.TargetTokens(), 8 * 256);
    EXPECT_EQ(layout.batch.source_tokens * layout.batch.micro_batches, 8 * 192);
    batches.emplace(layout.batch.micro_batches, layout.batch.target_tokens);
  }
  // Of 32 micro-batches one would be shorter than the longest sentence.
  EXPECT_THAT(batches, ElementsAre(Pair(1, 2048), Pair(2, 1024), Pair(4, 512), Pair(8, 256), Pair(16, 128)));
  std::set<int> replicas;
  for (const LayoutPrediction& layout : LayoutCandidates(model, options, SmallMachine(3, 2), {})) {
    replicas.insert(layout.pipeline.replicas);
  }
  EXPECT_THAT(replicas, ElementsAre(1, 2, 6)) << "3 would fill one node and a half";
}

TEST(LayoutSearch, ListsAsManyAsAreWantedAndTheyDiffer) {
  const TrainOptions options = SmallRun();
  const Machine machine = SmallMachine(1, 4);
  const auto search = SearchLayouts(options, machine, *CostsOf(machine), 1, {.top = 3}).value();
  std::set<std::tuple<int, int, int, int, bool>> shapes;
  for (const PlanReport& report : search.best) {
    const LayoutPrediction& layout = *report.prediction;
    shapes.emplace(layout.pipeline.stages, layout.pipeline.chunks, layout.pipeline.replicas, layout.batch.micro_batches,
                   layout.pipeline.recompute_every > 0);
  }
  EXPECT_EQ(shapes.size(), 3u);
  EXPECT_EQ(search.best.size(), 3u);
  EXPECT_EQ(search.candidates, 229);
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

// Those that `hadal train` accepts (configs/run.proto).
TEST(LayoutCandidates, HaveBatchesWithinTheFieldsRanges) {
  TrainOptions options = SmallRun();
  options.batch = {.micro_batches = 32768, .source_tokens = 524288, .target_tokens = 524288};
  options.model.encoder_layers = 0;
  options.batch.source_tokens = 2;  // not read
  const ModelPlan model = ModelPlan::Make(options.model);
  int more = 0, fewer = 0;
  for (const LayoutPrediction& layout : LayoutCandidates(model, options, SmallMachine(1, 1), {})) {
    EXPECT_LE(layout.batch.micro_batches, 65536);
    EXPECT_LE(layout.batch.target_tokens, 1 << 20);
    EXPECT_EQ(layout.batch.source_tokens, 2);
    more += layout.batch.micro_batches == 65536 ? 1 : 0;
    fewer += layout.batch.target_tokens == 1 << 20 ? 1 : 0;
  }
  EXPECT_GT(more, 0);
  EXPECT_GT(fewer, 0);
}

// In the order of KeptFields::kAll.
std::vector<int> Values(const PipelineOptions& p, const BatchOptions& b) {
  return {p.stages,          p.replicas,
          p.chunks,          static_cast<int>(p.schedule),
          p.recompute_every, p.shard_optimizer_state ? 1 : 0,
          b.target_tokens};
}

TEST(LayoutCandidates, KeepWhatIsSet) {
  TrainOptions options = SmallRun();
  options.pipeline.stages = 2;
  options.pipeline.replicas = 2;
  options.pipeline.chunks = 2;
  options.pipeline.schedule = ScheduleKind::kInterleaved1F1B;
  options.pipeline.recompute_every = 5;
  options.pipeline.shard_optimizer_state = false;
  const ModelPlan model = ModelPlan::Make(options.model);
  const std::vector<int> set = Values(options.pipeline, options.batch);
  for (size_t field = 0; field < set.size(); ++field) {
    KeptFields kept;
    kept.*KeptFields::kAll[field] = true;
    std::vector<std::set<int>> found(set.size());
    for (const LayoutPrediction& layout : LayoutCandidates(model, options, SmallMachine(1, 4), kept)) {
      for (size_t i = 0; i < set.size(); ++i) found[i].insert(Values(layout.pipeline, layout.batch)[i]);
    }
    EXPECT_THAT(found[field], ElementsAre(set[field])) << KeptText(KeptFields::kAll[field], options);
    const auto free = std::ranges::count_if(found, [](const std::set<int>& of_field) { return of_field.size() > 1; });
    EXPECT_GE(free, 4) << KeptText(KeptFields::kAll[field], options);
  }
  options.pipeline.split = {7};
  for (const LayoutPrediction& layout : LayoutCandidates(model, options, SmallMachine(1, 4), {})) {
    EXPECT_EQ(layout.pipeline.stages * layout.pipeline.chunks, 2);
  }
}

TEST(LayoutSearch, RefusesWhatDoesNotFitAndSaysWhatWould) {
  TrainOptions options = SmallRun();
  options.model.encoder_layers = options.model.decoder_layers = 30;
  ApplyResidualMethod(ResidualMethod::kDeepNorm, options.model);
  const Machine machine = SmallMachine(1, 2, cuda::OwnMemory::kDeviceBytes + (10 << 20));
  const auto costs = CostsOf(machine);
  const auto search = SearchLayouts(options, machine, *costs, 1, {});
  ASSERT_EQ(search.status().code(), absl::StatusCode::kResourceExhausted) << search.status();
  EXPECT_THAT(std::string(search.status().message()), HasSubstr("no layout of this run fits 2 device(s)"));
  EXPECT_THAT(std::string(search.status().message()), HasSubstr("nodes of 2 would fit it"));
  const auto hopeless = SearchLayouts(options, SmallMachine(1, 2, 100000), *costs, 1, {});
  EXPECT_THAT(std::string(hopeless.status().message()), HasSubstr("smaller micro-batches"));
}

TEST(LayoutSearch, MoreDevicesThanMicroBatchesAndCutsAreRefused) {
  TrainOptions options = SmallRun();
  options.batch.micro_batches = 1;
  const Machine machine = SmallMachine(64, 4);
  const auto search = SearchLayouts(options, machine, *CostsOf(machine), 1, {.kept = {.batch = true}});
  EXPECT_EQ(search.status().code(), absl::StatusCode::kInvalidArgument) << search.status();
}

// The layout that a run with these options makes for the report's ranks.
PipelineLayout Remade(const PlanReport& report, const BatchOptions& batch, const PipelineOptions& options,
                      const Machine& machine) {
  const int ranks = report.prediction->ranks();
  return MakeFittingLayout(report.model, batch, options, ranks, 0, PlannedResources(options, ranks, machine.device()),
                           Stream::ForLayouts(machine.device(), 1))
      .value();
}

// What is pasted behind the searched config is a config of that layout.
TEST(LayoutSearch, ItsArgumentsMakeTheLayout) {
  const std::string shipped = absl::StrCat(HADAL_CONFIGS, "/");
  const std::vector<std::string> files = {shipped + "base.textproto", shipped + "size/512.textproto",
                                          shipped + "depth/18.textproto"};
  const std::vector<std::string> before = {"data.train=nowhere", "pipeline.recompute_auto=true",
                                           "pipeline.memory_limit_bytes=1000000000"};
  const auto config = LoadConfig(files, before).value();
  TrainOptions options = MakeRunOptions(config).value().train;
  options.model.source_vocabulary = options.model.target_vocabulary = 8000;
  const Machine machine = SmallMachine(2, 4);
  const auto search = SearchLayouts(options, machine, *CostsOf(machine), 1, {}).value();
  for (const PlanReport& report : search.best) {
    const LayoutPrediction& layout = *report.prediction;
    EXPECT_LE(report.FullestBytes(), 1000000000);
    const std::string arguments = LayoutArguments(report);
    EXPECT_EQ(arguments.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.=- "), std::string::npos) << arguments;
    std::vector<std::string> overrides = before;
    for (const absl::string_view word : absl::StrSplit(arguments, ' ')) {
      if (word != "--set") overrides.emplace_back(word);
    }
    const auto pasted = LoadConfig(files, overrides).value();
    const auto run = MakeRunOptions(pasted).value();
    PipelineOptions pipeline = run.train.pipeline;
    EXPECT_EQ(pipeline.recompute_auto, !layout.pipeline.recompute.empty());
    const PipelineLayout remade = Remade(report, run.train.batch, pipeline, machine);
    EXPECT_EQ(remade.recompute, report.pipeline.recompute);
    EXPECT_EQ(remade.borders, report.pipeline.borders);
    pipeline.recompute_every = LongestLength(remade.recompute);
    EXPECT_EQ(Values(pipeline, run.train.batch), Values(layout.pipeline, layout.batch));
    EXPECT_THAT(pipeline.split, IsEmpty());
    EXPECT_EQ(run.train.batch.micro_batches, layout.batch.micro_batches);
    EXPECT_EQ(run.train.batch.source_tokens, layout.batch.source_tokens);
  }
}

// A large table on stage 0: without recomputation the even cut does not fit, and another one does.
TEST(LayoutSearch, ItsArgumentsMoveACutThatRecomputesNothing) {
  for (const ScheduleKind schedule : {ScheduleKind::k1F1B, ScheduleKind::kZbH1}) {
    TrainOptions options = SmallRun();
    options.model.encoder_layers = options.model.decoder_layers = 2;
    options.model.source_vocabulary = 20000;
    options.pipeline.stages = 2;
    options.pipeline.schedule = schedule;
    Machine machine = SmallMachine(1, 2);
    const auto costs = CostsOf(machine);
    const SearchOptions one{
        .top = 1, .kept = {.stages = true, .replicas = true, .chunks = true, .schedule = true, .batch = true}};
    const auto even = SearchLayouts(options, machine, *costs, 1, one).value();
    const ModelPlan& model = even.best.front().model;
    LayoutPrediction layout = *even.best.front().prediction;
    layout.pipeline.recompute_every = 0;
    int moved = 0;
    for (int32_t cut = 1; cut < std::ssize(model.sublayers); ++cut) {
      if (model.sublayers[cut].cut_before == 0) continue;
      layout.pipeline.split = {cut};
      machine.memory_bytes = FullestBytes(model, machine, LaidOut(model, machine, layout, 0));
      const auto search = SearchLayouts(options, machine, *costs, 1, one);
      if (!search.ok()) continue;
      const PlanReport& best = search->best.front();
      if (LongestLength(best.pipeline.recompute) > 0) continue;
      moved += best.pipeline.borders != even.best.front().pipeline.borders;
      PipelineOptions pipeline = options.pipeline;
      pipeline.schedule = best.prediction->pipeline.schedule;
      pipeline.recompute_auto = absl::StrContains(LayoutArguments(best), "recompute_auto=true");
      pipeline.memory_limit_bytes = machine.memory_bytes;
      const PipelineLayout remade = Remade(best, options.batch, pipeline, machine);
      EXPECT_EQ(remade.borders, best.pipeline.borders);
      EXPECT_EQ(remade.schedule, best.pipeline.schedule);
      EXPECT_EQ(LongestLength(remade.recompute), 0);
    }
    EXPECT_GT(moved, 0) << ToString(schedule);
  }
}

// What the help and layout_candidates.h say: 266 for each way to divide the devices, whatever the depth.
TEST(LayoutCandidates, AreBoundedAtAnyDepth) {
  TrainOptions options = SmallRun();
  options.batch = {.micro_batches = 4096, .source_tokens = 2048, .target_tokens = 2048};
  size_t before = 0;
  for (const int layers : {1000, 10000}) {
    options.model.encoder_layers = options.model.decoder_layers = layers;
    const size_t candidates = LayoutCandidates(ModelPlan::Make(options.model), options, SmallMachine(64, 8), {}).size();
    EXPECT_LE(candidates, 10u * kMostCandidatesOfAGrid);
    EXPECT_GT(candidates, 8u * kMostCandidatesOfAGrid) << "no bound above what there is";
    EXPECT_GE(candidates, before);
    before = candidates;
  }
}

TEST(LayoutCandidates, OfAnElasticJobKeepItsGroupsAndMayLeaveRanksIdle) {
  TrainOptions options = SmallRun();
  const ModelPlan model = ModelPlan::Make(options.model);
  const auto grids = [&](int groups) {
    options.batch.sum_groups = groups;
    std::set<std::pair<int, int>> found;
    for (const LayoutPrediction& layout :
         LayoutCandidates(model, options, SmallMachine(7, 1), {.batch = true, .most_ranks = 7})) {
      found.emplace(layout.pipeline.replicas, layout.pipeline.stages);
    }
    return found;
  };
  EXPECT_THAT(grids(6), ElementsAre(Pair(3, 1), Pair(3, 2), Pair(6, 1)));
  EXPECT_EQ(grids(0).size(), 7u + 3u + 1u) << "1, 2 and 4 replicas";
  EXPECT_THAT(grids(16), grids(0));
}

// What an elastic job of 32 micro-batches a replica keeps of its speed when 64 nodes of 8 become 63.
TEST(LayoutSearch, ANodeLessOf64KeepsMostOfTheTokensASecond) {
  TrainOptions options = SmallRun();
  options.model.encoder_layers = options.model.decoder_layers = 100;
  options.model.d_model = 512;
  options.model.d_ff = 2048;
  options.model.heads = 8;
  options.batch = {.micro_batches = 4096, .source_tokens = 4096, .target_tokens = 4096};
  ApplyResidualMethod(ResidualMethod::kDeepNorm, options.model);
  Machine machine = LoadMachine(absl::StrCat(HADAL_CONFIGS, "/machines/a100_80g_8.textproto")).value();
  const auto costs = CostsOf(machine);
  const auto planned = [&](int nodes) {
    machine.nodes = nodes;
    const KeptFields kept{.optimizer_sharding = true, .batch = true, .most_ranks = 8 * nodes};
    return *SearchLayouts(options, machine, *costs, 1, {.top = 1, .kept = kept}).value().best.front().prediction;
  };
  const LayoutPrediction all = planned(64);
  options.batch.sum_groups = all.pipeline.replicas;
  const LayoutPrediction less = planned(63);
  EXPECT_TRUE(MayDivide(all.pipeline.replicas, less.pipeline.replicas));
  EXPECT_GE(all.step_seconds / less.step_seconds, 0.85) << Name(all) << " -> " << Name(less);
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
  Machine machine = LoadMachine(absl::StrCat(HADAL_CONFIGS, "/machines/a100_80g_8.textproto")).value();
  machine.nodes = 64;
  const auto costs = CostsOf(machine);
  const auto search = SearchLayouts(options, machine, *costs, 1, {.top = 1}).value();
  const LayoutPrediction& best = *search.best.front().prediction;
  EXPECT_EQ(best.ranks(), 512);
  EXPECT_EQ(best.TargetTokens(), 128 * 4096);
  EXPECT_LE(search.best.front().FullestBytes(), machine.memory_bytes);
  EXPECT_LT(search.replayed, search.candidates / 4) << "most are never laid out";
  const SearchText about{options, machine, *costs, {}};
  const std::string text = LayoutSearchToText(search, about);
  const auto number_behind = [&](const std::string& words) {
    return text.find(words) == std::string::npos ? -1 : std::atof(text.c_str() + text.find(words) + words.size());
  };
  const double days = 1000 * best.step_seconds / 86400;
  EXPECT_NEAR(number_behind("run: 1,000 steps take "), days, 0.005);
  EXPECT_THAT(text, HasSubstr(absl::StrFormat(" days, %.0f device-days: a prediction", 512 * days)));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("most goes to compute"))) << "besides computing";
  const auto json = nlohmann::json::parse(LayoutSearchToJson(search, about));
  EXPECT_EQ(json["memory"].size(), 512u);
  EXPECT_DOUBLE_EQ(json["search"]["layouts"][0]["utilisation"].get<double>(),
                   search.perfect_seconds / best.step_seconds);
  const auto& fullest = json["memory"][static_cast<int>(number_behind("memory: rank "))];
  EXPECT_EQ(fullest["device_bytes"], search.best.front().FullestBytes());
  double state = 0;
  for (const char* part : {"weights_bytes", "gradients_bytes", "optimizer_bytes"}) state += fullest[part].get<double>();
  EXPECT_NEAR(number_behind("GiB = state "), state / (1 << 30), 0.006);
}

}  // namespace
}  // namespace hadal
