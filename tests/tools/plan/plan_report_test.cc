#include "tools/plan/plan_report.h"
#include "layers/parameter_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "kernels/cuda_host/driver_memory.h"
#include "kernels/cuda_host/own_memory.h"
#include "layers/method_presets.h"
#include "pipeline/engine/engine.h"
#include "pipeline/engine/memory_fit.h"
#include "pipeline/schedule/schedule_replay.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/status_macros.h"
#include "tests/support/tiny_plan.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

constexpr MachineRate kRate{.gflops = 10, .adam_elements_per_second = 1e9};

TrainOptions SmallRun() {
  TrainOptions options;
  options.model =
      TinyModel({.encoder_layers = 3, .decoder_layers = 4, .d_model = 32, .d_ff = 64, .heads = 2, .vocabulary = 100});
  ApplyResidualMethod(ResidualMethod::kDeepNorm, options.model);
  options.batch = {.micro_batches = 4, .source_tokens = 48, .target_tokens = 64};
  return options;
}

// Every rank makes its own plan, since those of replicas differ. Returns the report.
PlanReport ExpectPlannedArenas(const TrainOptions& options, int ranks) {
  const Stream stream = Stream::Cpu(2);
  const auto report = MakePlanReport(options, ranks, stream, kRate).value();
  EXPECT_EQ(std::ssize(report.layouts), ranks);
  InProcessWorld world(ranks);
  const absl::Status status = world.Run([&](Communicator& communicator) -> absl::Status {
    HADAL_ASSIGN_OR_RETURN(
        const PipelineLayout pipeline,
        MakePipelineLayout(report.model, options.batch, options.pipeline, communicator.size(), communicator.rank()));
    HADAL_ASSIGN_OR_RETURN(const auto engine, Engine::Create({.plan = report.model,
                                                              .pipeline = pipeline,
                                                              .stream = stream,
                                                              .purpose = Purpose::kTraining,
                                                              .world = communicator,
                                                              .timeout = absl::Seconds(20)}));
    EXPECT_EQ(engine->arena_bytes(), report.layouts[communicator.rank()].total_bytes());
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  return report;
}

TEST(PlanReport, BytesAreTheArenasOnEveryRank) {
  const PipelineOptions layouts[] = {{},
                                     {.recompute_every = 2},
                                     {.schedule = ScheduleKind::kZbH1},
                                     {.schedule = ScheduleKind::k1F1BSplit, .recompute_every = 2},
                                     {.schedule = ScheduleKind::k1F1BSplit, .recompute = {{2, 3}, {6, 0}, {9, 1}}},
                                     {.chunks = 2, .schedule = ScheduleKind::kInterleavedZb}};
  for (const ResidualMethod method :
       {ResidualMethod::kDeepNorm, ResidualMethod::kResidualDual, ResidualMethod::kMhc, ResidualMethod::kAttnRes}) {
    for (const PipelineOptions& layout : layouts) {
      TrainOptions options = SmallRun();
      ApplyResidualMethod(method, options.model);
      options.pipeline = layout;
      ExpectPlannedArenas(options, 3);
    }
  }
}

// The last rank's workspace is a block of logits and little else.
TEST(PlanReport, ALargeVocabularyNeedsNoMoreThanABlockOfLogits) {
  TrainOptions options = SmallRun();
  options.model.d_model = options.model.d_ff = 8;
  options.model.source_vocabulary = options.model.target_vocabulary = 250000;
  options.batch.target_tokens = 256;
  constexpr int64_t kLogits = int64_t{64} * 250000 * 4;
  const std::vector<ArenaLayout> layouts = ExpectPlannedArenas(options, 2).layouts;
  for (const ArenaLayout::Category& category : layouts[1].categories()) {
    if (category.name != "workspace") continue;
    EXPECT_GE(category.bytes, kLogits);
    EXPECT_LT(category.bytes, kLogits + (int64_t{1} << 20));
    return;
  }
  FAIL() << "no workspace";
}

// Both stages of an encoder alone, so that one stream or two cross the first border.
TEST(PlanReport, ASecondStreamDoublesABordersBytes) {
  TrainOptions options = SmallRun();
  options.pipeline.split = {4};
  const auto one = MakePlanReport(options, 2, Stream::Cpu(1), kRate);
  ApplyResidualMethod(ResidualMethod::kResidualDual, options.model);
  const auto two = MakePlanReport(options, 2, Stream::Cpu(1), kRate);
  ASSERT_TRUE(one.ok() && two.ok()) << one.status() << two.status();
  EXPECT_EQ(two->chunks[0].border_bytes, 2 * one->chunks[0].border_bytes);
  EXPECT_EQ(two->chunks[0].gradient_bytes, 2 * one->chunks[0].gradient_bytes);
  EXPECT_THAT(PlanToText(*two, {.sublayers = true}), HasSubstr("second stream"));
  EXPECT_THAT(PlanToText(*one, {.sublayers = true}), Not(HasSubstr("second stream")));
}

// Replicas differ in their share of micro-batches and of Adam's moments.
TEST(PlanReport, BytesAreTheArenasOnEveryRankOfAGrid) {
  for (const bool sharded : {true, false}) {
    TrainOptions options = SmallRun();
    options.pipeline.replicas = 3;
    options.pipeline.shard_optimizer_state = sharded;
    const PlanReport report = ExpectPlannedArenas(options, 6);
    const nlohmann::json json = nlohmann::json::parse(PlanToJson(report, {}));
    EXPECT_EQ(json["ranks"], 6);
    EXPECT_EQ(json["micro_batches"], 4);
    EXPECT_EQ(StepTokens(report), 4 * 64);
    std::vector<int64_t> parameters(2, 0);  // of a stage
    for (const ChunkReport& chunk : report.chunks) parameters[chunk.rank] += chunk.parameters;
    EXPECT_DOUBLE_EQ(report.optimizer_seconds,
                     static_cast<double>(std::max(parameters[0], parameters[1])) / (sharded ? 3 : 1) / 1e9);
    EXPECT_THAT(PlanToText(report, {}), HasSubstr(sharded ? "moments sharded" : "on every replica"));
  }
}

// 44 square matrices of 5 · 2 · (32³ + 32³) operations, 14 of 5 · 2 · (32² · 96 / 2 + 32² · 64).
TEST(PlanReport, MuonsBytesAndOperations) {
  TrainOptions options = SmallRun();
  const PlanReport adam = ExpectPlannedArenas(options, 1);
  options.optimizer.kind = OptimizerKind::kMuon;
  const PlanReport muon = ExpectPlannedArenas(options, 1);
  EXPECT_EQ(muon.muon_operations, 44 * 655360 + 14 * 1146880);
  EXPECT_NEAR(muon.optimizer_seconds - adam.optimizer_seconds, muon.muon_operations / 1e10, 1e-9);
  EXPECT_THAT(PlanToText(muon, {}), HasSubstr("muon      58 matrices of"));
  int64_t elements = 0;  // of one moment
  for (int32_t p = 0; p < std::ssize(muon.model.parameters); ++p) {
    if (muon.model.uses_muon(p)) elements += muon.model.parameters[p].elements();
  }
  EXPECT_EQ(ClusterNeedsOf(muon, options, {}).checkpoint_bytes,
            ClusterNeedsOf(adam, options, {}).checkpoint_bytes - 4 * elements);
  EXPECT_THAT(PlanToText(adam, {}), Not(HasSubstr("muon")));
}

// Where validations translate, the larger of the two programs counts; what is printed of both is what both take.
TEST(PlanReport, TranslationLiesOverTraining) {
  TrainOptions options = SmallRun();
  const Stream stream = Stream::Cpu(1);
  const auto without = MakePlanReport(options, 2, stream, kRate).value();
  for (const int sentences : {1, 200}) {  // less than training takes, and more
    options.pipeline.decoder = {.sentences = sentences};
    const auto report = MakePlanReport(options, 2, stream, kRate).value();
    const nlohmann::json json = nlohmann::json::parse(PlanToJson(report, {}));
    InProcessWorld world(2);
    const absl::Status status = world.Run([&](Communicator& communicator) -> absl::Status {
      const int rank = communicator.rank();
      const ArenaLayout& both = report.layouts[rank];
      HADAL_ASSIGN_OR_RETURN(const auto engine, Engine::Create({.plan = report.model,
                                                                .pipeline = report.pipeline,
                                                                .stream = stream,
                                                                .purpose = Purpose::kTraining,
                                                                .world = communicator,
                                                                .timeout = absl::Seconds(20)}));
      EXPECT_EQ(engine->arena_bytes(), both.total_bytes());
      int64_t lasting = 0, scratch[2] = {0, 0};
      for (const ArenaLayout::Category& category : both.categories()) {
        (category.section.lasting ? lasting : scratch[category.program]) += category.bytes;
      }
      const nlohmann::json& stated = json["memory"][rank];
      EXPECT_EQ(scratch[1] > scratch[0], sentences > 1);
      EXPECT_EQ(both.total_bytes(), lasting + std::max(scratch[0], scratch[1]));
      EXPECT_EQ(stated["overlaid_bytes"], std::min(scratch[0], scratch[1]));
      int64_t sum = -stated["overlaid_bytes"].get<int64_t>();
      for (const auto& [name, bytes] : stated.items()) {
        if (name != "arena_bytes" && name != "overlaid_bytes") sum += bytes.get<int64_t>();
      }
      EXPECT_EQ(sum, stated["arena_bytes"]);
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_THAT(PlanToText(report, {}), HasSubstr("that training and translation share"));
  }
  EXPECT_THAT(PlanToText(without, {}), Not(HasSubstr("share")));
}

TEST(PlanReport, ChunksCoverTheModel) {
  const auto report = MakePlanReport(SmallRun(), 3, Stream::Cpu(1), kRate).value();
  int64_t parameters = 0;
  double cost = 0;
  int32_t next = 0;
  for (const ChunkReport& chunk : report.chunks) {
    EXPECT_EQ(chunk.first, next);
    next = chunk.last;
    parameters += chunk.parameters;
    cost += chunk.cost_share;
  }
  EXPECT_EQ(next, static_cast<int32_t>(report.model.sublayers.size()));
  EXPECT_EQ(parameters, report.model.ParameterElements());
  EXPECT_NEAR(cost, 1, 1e-12);
}

// One rank has no bubble: a step is its products and its optimizer.
TEST(PlanReport, PredictsTheTimeOfTheProducts) {
  const auto report = MakePlanReport(SmallRun(), 1, Stream::Cpu(1), kRate).value();
  const double multiply_adds = std::accumulate(report.pipeline.costs.begin(), report.pipeline.costs.end(), 0.0);
  const double products = 4 * 3 * 2 * multiply_adds / 10e9;
  const double optimizer = static_cast<double>(report.model.ParameterElements()) / 1e9;
  EXPECT_NEAR(report.step_seconds, products + optimizer, 1e-9);
  EXPECT_NEAR(report.bubble, 0, 1e-9);
  EXPECT_THAT(PlanToText(report, {}), HasSubstr(" 100.0% ")) << "of the cost";
  TrainOptions options = SmallRun();
  options.pipeline.recompute_every = 2;
  const auto repeated = MakePlanReport(options, 1, Stream::Cpu(1), kRate).value();
  double again = 0;
  for (size_t s = 0; s < report.pipeline.costs.size(); ++s) {
    if (repeated.pipeline.recomputed[s]) again += report.pipeline.costs[s];
  }
  EXPECT_EQ(repeated.chunks[0].recomputed_sublayers, 3 * 2 + 4 * 3);
  EXPECT_NEAR(repeated.step_seconds - report.step_seconds, 4 * 2 * again / 10e9, 1e-9);
}

// Three equal stages of four micro-batches would idle 2 / 6 of the time.
TEST(PlanReport, StatesTheBubble) {
  const auto report = MakePlanReport(SmallRun(), 3, Stream::Cpu(1), kRate).value();
  EXPECT_GT(report.bubble, 0.2);
  EXPECT_THAT(PlanToText(report, {}), HasSubstr(absl::StrFormat("bubble    %.1f%% of", 100 * report.bubble)));
  for (const ChunkReport& chunk : report.chunks) {
    EXPECT_DOUBLE_EQ(chunk.weight_seconds, kWeightShare * chunk.backward_seconds);
  }
}

// What products read takes two bytes more, where another stage has the master two bytes less.
TEST(PlanReport, Bf16HalvesBordersOfAPostNormStreamAndAddsTwoBytesAWeight) {
  TrainOptions options = SmallRun();
  const Stream device = Stream::ForLayouts(DeviceKind::kCuda, 1);
  const auto automatic = MakePlanReport(options, 3, device, kRate);
  options.precision = TrainingPrecision::kFp32;
  const auto fp32 = MakePlanReport(options, 3, device, kRate);
  options.precision = TrainingPrecision::kBf16;
  const auto bf16 = MakePlanReport(options, 3, device, kRate);
  ASSERT_TRUE(automatic.ok() && fp32.ok() && bf16.ok());
  EXPECT_EQ(automatic->layouts[0].total_bytes(), bf16->layouts[0].total_bytes());
  const auto bytes = [](const ArenaLayout& layout, const std::string& name) {
    int64_t sum = 0;
    for (const ArenaLayout::Category& category : layout.categories()) sum += category.name == name ? category.bytes : 0;
    return sum;
  };
  for (size_t c = 0; c < fp32->chunks.size(); ++c) {
    EXPECT_EQ(2 * bf16->chunks[c].border_bytes, fp32->chunks[c].border_bytes);
    const ArenaLayout &narrow = bf16->layouts[c], &wide = fp32->layouts[c];
    EXPECT_EQ(bytes(narrow, "gradients"), bytes(wide, "gradients"));
    EXPECT_EQ(bytes(narrow, "optimizer"), bytes(wide, "optimizer"));
    EXPECT_LT(bytes(narrow, "activations"), 0.6 * static_cast<double>(bytes(wide, "activations")));
    const ModelPlan& model = fp32->model;
    const int stage = static_cast<int>(c);
    int64_t more = 0;
    for (int32_t p = 0; p < std::ssize(model.parameters); ++p) {
      const std::vector<int32_t> uses = model.Uses(p);
      const bool is_read = std::any_of(uses.begin(), uses.end(),
                                       [&](int32_t use) { return fp32->pipeline.RankOfSublayer(use) == stage; });
      if (!is_read || !model.ReadByProductsAlone(p)) continue;
      const bool is_owned = fp32->pipeline.OwnerOf(model, p) == stage;
      more += (is_owned ? 2 : -2) * model.parameters[p].elements();
    }
    EXPECT_NEAR(bytes(narrow, "weights") - bytes(wide, "weights"), more, 2 * ArenaLayout::kAlignmentBytes);
  }
}

// In bf16 the encoder's output crosses in two bytes and its gradient comes back in four; the post-norm stream takes two
// both ways.
TEST(PlanReport, BordersStateWhatCrossesEachWay) {
  TrainOptions options = SmallRun();
  options.pipeline.split = {3, 7, 11};                     // inside the encoder, between the stacks, inside the decoder
  constexpr int64_t kSource = 48 * 32, kTarget = 64 * 32;  // elements
  const auto bytes = [](const PlanReport& report) {
    std::vector<std::pair<int64_t, int64_t>> both;
    for (const ChunkReport& chunk : report.chunks) both.emplace_back(chunk.border_bytes, chunk.gradient_bytes);
    return both;
  };
  const auto bf16 = MakePlanReport(options, 4, Stream::ForLayouts(DeviceKind::kCuda, 1), kRate);
  const auto fp32 = MakePlanReport(options, 4, Stream::Cpu(1), kRate);
  ASSERT_TRUE(bf16.ok() && fp32.ok()) << bf16.status() << fp32.status();
  EXPECT_THAT(bytes(*bf16), ElementsAre(Pair(2 * kSource, 2 * kSource), Pair(2 * kSource, 4 * kSource),
                                        Pair(2 * (kTarget + kSource), 2 * kTarget + 4 * kSource), Pair(0, 0)));
  EXPECT_THAT(bytes(*fp32), ElementsAre(Pair(4 * kSource, 4 * kSource), Pair(4 * kSource, 4 * kSource),
                                        Pair(4 * (kTarget + kSource), 4 * (kTarget + kSource)), Pair(0, 0)));
  EXPECT_THAT(PlanToText(*bf16, {}), HasSubstr("and of gradients back"));
  const nlohmann::json json = nlohmann::json::parse(PlanToJson(*bf16, {}));
  EXPECT_EQ(json["stages"][1]["border_bytes"], 2 * kSource);
  EXPECT_EQ(json["stages"][1]["gradient_bytes"], 4 * kSource);
}

TEST(PlanReport, RefusesWhatDoesNotFitAndNamesWhatDoes) {
  TrainOptions options = SmallRun();
  const auto free = MakePlanReport(options, 1, Stream::Cpu(1), kRate).value();
  options.pipeline.memory_limit_bytes = free.layouts[0].total_bytes() - 1;
  const absl::Status refused = MakePlanReport(options, 1, Stream::Cpu(1), kRate).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("rank 0"), HasSubstr("recompute_auto = true needs"), HasSubstr("which fits")));
  options.pipeline.memory_limit_bytes += 1;
  EXPECT_TRUE(MakePlanReport(options, 1, Stream::Cpu(1), kRate).ok());
}

// Combined layers: the history counts, in memory and at the borders, and where it does not fit the depth that would is
// named.
TEST(PlanReport, StatesTheHistoryAndNamesTheDepthThatFits) {
  TrainOptions options = SmallRun();
  options.model.encoder_layers = options.model.decoder_layers = 12;
  ApplyResidualMethod(ResidualMethod::kDlclPre, options.model);
  options.pipeline.split = {1 + 4 * 2};  // in front of the encoder's fifth layer: y_0 … y_4
  const auto free = MakePlanReport(options, 2, Stream::Cpu(1), kRate).value();
  constexpr int64_t kEntryBytes = 48 * 32 * 4;  // rows, width
  EXPECT_EQ(free.chunks[0].border_bytes, 5 * kEntryBytes);
  const auto& categories = free.layouts[0].categories();
  const auto history = std::find_if(categories.begin(), categories.end(),
                                    [](const ArenaLayout::Category& c) { return c.name == "layer history"; });
  ASSERT_NE(history, categories.end());
  EXPECT_EQ(history->bytes, (free.chunks[0].live_micro_batches + 1) * 5 * kEntryBytes) << "and a gradient";
  EXPECT_THAT(PlanToText(free, {.sublayers = true}), AllOf(HasSubstr("layer history"), HasSubstr("residual x 5")));

  // The depth that was asked for, if only its split does not fit.
  options.pipeline.recompute_every = 1;
  options.pipeline.split.clear();
  const auto even = MakePlanReport(options, 2, Stream::Cpu(1), kRate).value();
  options.pipeline.memory_limit_bytes = std::max(even.layouts[0].total_bytes(), even.layouts[1].total_bytes());
  options.pipeline.split = {1 + 2 * 2};
  EXPECT_THAT(std::string(MakePlanReport(options, 2, Stream::Cpu(1), kRate).status().message()),
              HasSubstr("the largest depth that fits is 12L-12L"));

  options.pipeline.recompute_every = 0;
  options.pipeline.split.clear();
  options.pipeline.memory_limit_bytes = 5 << 19;
  const absl::Status refused = MakePlanReport(options, 2, Stream::Cpu(1), kRate).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  const std::string message(refused.message());
  const size_t at = message.find("the largest depth that fits is ");
  ASSERT_NE(at, std::string::npos) << message;
  const int depth = std::atoi(message.c_str() + at + std::strlen("the largest depth that fits is "));
  options.pipeline.recompute_every = 1;
  options.model.encoder_layers = options.model.decoder_layers = depth;
  EXPECT_TRUE(MakePlanReport(options, 2, Stream::Cpu(1), kRate).ok()) << message;
  options.model.encoder_layers = options.model.decoder_layers = depth + 1;
  EXPECT_FALSE(MakePlanReport(options, 2, Stream::Cpu(1), kRate).ok()) << message;
}

TEST(PlanReport, JsonNamesMemoryInWordsWithoutSpaces) {
  TrainOptions options = SmallRun();
  options.pipeline.save_buffer_bytes = 1 << 20;
  const auto report = MakePlanReport(options, 2, Stream::Cpu(1), kRate).value();
  const nlohmann::json json = nlohmann::json::parse(PlanToJson(report, {}));
  EXPECT_GT(json["memory"][0]["checkpoint_buffer_bytes"], 0);
}

TEST(PlanReport, ASublayersNormGainIsShown) {
  TrainOptions options = SmallRun();
  ApplyResidualMethod(ResidualMethod::kLnScaling, options.model);
  const auto report = MakePlanReport(options, 1, Stream::Cpu(1), kRate).value();
  EXPECT_THAT(PlanToText(report, {.sublayers = true}),
              ContainsRegex("decoder layer 3 feed-forward .* 1\\.0000 +1\\.0000 +0\\.5000 "));
  const nlohmann::json json = nlohmann::json::parse(PlanToJson(report, {.sublayers = true}));
  EXPECT_EQ(json["list"][json["list"].size() - 2]["norm_gain"], 0.5) << "the last layer of four";
}

TEST(ClusterNeeds, AreOfTheFullestNodeAndOfWholeCheckpoints) {
  TrainOptions options = SmallRun();
  options.stop.steps = 1000;
  options.validation.every_steps = 100;
  options.checkpoint = {.every_steps = 50, .every_minutes = 0, .keep_last = 3, .keep_every = 400};
  PlanReport report = MakePlanReport(options, 3, Stream::Cpu(1), kRate).value();
  const ClusterNeeds needs =
      ClusterNeedsOf(report, options, {.ranks_per_node = 2, .write_gb_per_second = 1e-3, .grace_seconds = 300});
  const auto with_process = [&](int rank) {
    return report.layouts[rank].total_bytes() + MemoryAllowance::Bytes(report.threads);
  };
  EXPECT_EQ(needs.nodes, 2);
  EXPECT_EQ(needs.host_bytes, std::max(with_process(0) + with_process(1), with_process(2)));
  EXPECT_EQ(needs.checkpoint_bytes, 12 * report.model.ParameterElements()) << "a weight and two moments";
  EXPECT_DOUBLE_EQ(needs.checkpoint_seconds, 1e-6 * static_cast<double>(needs.checkpoint_bytes));
  EXPECT_DOUBLE_EQ(needs.interval_seconds, 50 * report.step_seconds);
  EXPECT_EQ(needs.kept_checkpoints, 3 + 2 + 1 + 1) << "newest, multiples, the best, one being written";
  EXPECT_DOUBLE_EQ(needs.end_seconds, report.step_seconds + 2 * needs.checkpoint_seconds);
  EXPECT_TRUE(needs.fits_grace());
  report.cluster = needs;
  EXPECT_THAT(PlanToText(report, {}), AllOf(HasSubstr("2 of 2 rank(s)"), HasSubstr("at most 7 checkpoints"),
                                            HasSubstr("within 5m00s (--grace-seconds)")));
  EXPECT_EQ(nlohmann::json::parse(PlanToJson(report, {}))["cluster"]["kept_bytes"], 7 * needs.checkpoint_bytes);
  options.checkpoint.memory_every_steps = 10;
  EXPECT_EQ(ClusterNeedsOf(report, options, {}).copy_bytes, 2 * needs.checkpoint_bytes) << "one node has no neighbour";
  const ClusterNeeds copied = ClusterNeedsOf(report, options, {.ranks_per_node = 2});
  EXPECT_GT(copied.copy_bytes, 2 * needs.checkpoint_bytes) << "and one node's once more while it is received";
  EXPECT_LT(copied.copy_bytes, 3 * needs.checkpoint_bytes);
  EXPECT_EQ(copied.host_bytes, needs.host_bytes + copied.copy_bytes);
  report.cluster = copied;
  EXPECT_THAT(PlanToText(report, {}), HasSubstr("of it copies of the state"));
  options.checkpoint.keep_last = 0;
  EXPECT_EQ(ClusterNeedsOf(report, options, {}).kept_checkpoints, 20 + 1);
  options.checkpoint.keep_every = 30;
  EXPECT_EQ(ClusterNeedsOf(report, options, {}).kept_checkpoints, 20 + 33 + 1) << "these are saved, too";
  EXPECT_DOUBLE_EQ(ClusterNeedsOf(report, options, {}).interval_seconds, 30 * report.step_seconds);
  options.checkpoint = {.every_steps = 0, .every_minutes = 2, .keep_last = 0};
  report.step_seconds = 6;
  EXPECT_EQ(ClusterNeedsOf(report, options, {}).kept_checkpoints, 1000 * 6 / 120 + 1);
  EXPECT_DOUBLE_EQ(ClusterNeedsOf(report, options, {}).interval_seconds, 120);
  options.checkpoint.keep_last = 3;
  options.validation.every_steps = 0;
  EXPECT_EQ(ClusterNeedsOf(report, options, {}).kept_checkpoints, 3 + 1) << "without validations none is the best";
  options.checkpoint = {.keep_last = 0};
  options.stop.steps = 0;
  report.cluster = ClusterNeedsOf(report, options, {.write_gb_per_second = 1e-6, .grace_seconds = 1});
  EXPECT_THAT(PlanToText(report, {}), AllOf(HasSubstr("grows with every checkpoint"), HasSubstr("LONGER THAN 1.0s")));
  EXPECT_TRUE(nlohmann::json::parse(PlanToJson(report, {}))["cluster"]["kept_bytes"].is_null());
  options.checkpoint = {.keep_last = 3, .keep_every = 30};
  EXPECT_EQ(ClusterNeedsOf(report, options, {}).kept_checkpoints, -1) << "each multiple, without end";
}

// A device holds the arena; its host what is pinned, and the graphs' launches.
TEST(ClusterNeeds, OfAHostWithDevicesAreWhatIsPinned) {
  const PlanReport report = MakePlanReport(SmallRun(), 1, Stream::ForLayouts(DeviceKind::kCuda, 1), kRate).value();
  EXPECT_EQ(ClusterNeedsOf(report, SmallRun(), {}).host_bytes,
            report.layouts[0].host_bytes() + MemoryAllowance::Bytes(1) + cuda::OwnMemory::kHostBytes +
                MostGraphsOfARank(report).launches * cuda::DriverMemory::kGraphLaunchHostBytes);
}

TEST(PlanReport, TextAndJsonHoldTheSame) {
  const auto report = MakePlanReport(SmallRun(), 2, Stream::Cpu(1), kRate).value();
  const std::string text = PlanToText(report, {.sublayers = true});
  EXPECT_THAT(text,
              AllOf(HasSubstr("rank"), HasSubstr("decoder layer 3 feed-forward"), HasSubstr("<- cut"),
                    HasSubstr("memory"), Not(HasSubstr("CUDA graphs")), HasSubstr("10 GFLOP/s per rank (given)")));
  const auto on_device = MakePlanReport(SmallRun(), 2, Stream::ForLayouts(DeviceKind::kCuda, 1), kRate).value();
  EXPECT_THAT(PlanToText(on_device, {}),
              AllOf(HasSubstr("at most 96 CUDA graphs per rank"),
                    ContainsRegex("on the host: at most [0-9.]+ MiB per rank for about [1-9][0-9]+ launches")));
  const nlohmann::json json = nlohmann::json::parse(PlanToJson(report, {.sublayers = true}));
  EXPECT_EQ(json["parameters"], report.model.ParameterElements());
  EXPECT_EQ(json["memory"][1]["arena_bytes"], report.layouts[1].total_bytes());
  EXPECT_EQ(json["decoder_residual_gain"], report.model.options.decoder.residual_gain);
  EXPECT_EQ(json["target_tokens_per_second"], 4 * 64 / report.step_seconds);
  EXPECT_EQ(json["stages"][1]["weight_seconds"], report.chunks[1].weight_seconds);
  EXPECT_EQ(nlohmann::json::parse(PlanToJson(on_device, {}))["memory"][0]["driver_bytes"],
            DriverBytes(on_device.model, on_device.pipeline));
  EXPECT_EQ(json["stages"].size(), 2u);
  EXPECT_EQ(json["list"].size(), report.model.sublayers.size());
  EXPECT_THAT(text, HasSubstr(std::to_string(report.layouts[1].total_bytes())));
  const auto number_after = [&](const char* words) {
    return std::atof(text.c_str() + text.find(words) + std::strlen(words));
  };
  EXPECT_GE(number_after("with allowance "), MemoryAllowance::Bytes(1) >> 20) << "MiB";
  const int64_t both = report.layouts[0].total_bytes() + report.layouts[1].total_bytes();
  EXPECT_NEAR(number_after("total of the arenas "), static_cast<double>(both) / (1 << 20), 0.06);
  const double tflops = number_after(" target tokens/s, ");
  EXPECT_GT(tflops, 0.01) << "two ranks of 10 GFLOP/s are mostly at work";
  EXPECT_LE(tflops, 0.02);
}

}  // namespace
}  // namespace hadal
