// What a memory limit makes of a pipeline's recomputation; its words, depths and devices:
// tests/tools/plan/plan_report_test.cc, tests/integration/device_plan_test.cc.
#include "pipeline/engine/memory_fit.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "gtest/gtest.h"
#include "layers/method_presets.h"
#include "layers/parameter_store.h"
#include "pipeline/engine/engine.h"
#include "pipeline/layout/recompute_plan.h"
#include "tests/support/tiny_plan.h"

namespace hadal {
namespace {

constexpr BatchOptions kBatch{.micro_batches = 4, .source_tokens = 64, .target_tokens = 64};
constexpr int kRanks = 2;

class MemoryFitTest : public ::testing::Test {
 protected:
  MemoryFitTest() : plan_(ModelPlan::Make(Model())) {}

  static ModelOptions Model() {
    ModelOptions model = TinyModel(
        {.encoder_layers = 6, .decoder_layers = 6, .d_model = 16, .d_ff = 64, .heads = 2, .max_positions = 64});
    ApplyResidualMethod(ResidualMethod::kDeepNorm, model);
    return model;
  }
  absl::StatusOr<PipelineLayout> Fit(const PipelineOptions& options, int64_t limit_bytes, int rank = 0) const {
    return MakeFittingLayout(plan_, kBatch, options, kRanks, rank, {.memory_limit_bytes = limit_bytes}, stream_);
  }
  // Of the fullest rank, with recomputation every `k` sublayers.
  int64_t Bytes(int32_t k) const {
    const PipelineLayout pipeline = MakePipelineLayout(plan_, kBatch, {.recompute_every = k}, kRanks).value();
    const std::vector<ArenaLayout> layouts = TrainingLayouts(plan_, pipeline, stream_).value();
    int64_t most = 0;
    for (const ArenaLayout& layout : layouts) {
      most = std::max(most, LimitedBytes(layout, DeviceKind::kCpu));
    }
    return most;
  }

  static int RecomputedOf(const PipelineLayout& pipeline, int rank) {
    int count = 0;
    for (int32_t s = pipeline.first_sublayer(rank, 0); s < pipeline.last_sublayer(rank, 0); ++s) {
      count += pipeline.recomputed[s] ? 1 : 0;
    }
    return count;
  }

  const ModelPlan plan_;
  const Stream stream_ = Stream::Cpu(1);
};

Replay ReplayOf(const PipelineLayout& pipeline) {
  return ReplaySchedule(pipeline.programs, pipeline.shape, CostsOfChunks(pipeline),
                        {.outstanding_sends = pipeline.outstanding_sends})
      .value();
}

double StepLength(const PipelineLayout& pipeline) { return ReplayOf(pipeline).makespan_seconds; }

TEST_F(MemoryFitTest, WithoutALimitThePlanIsAsAskedFor) {
  for (const int32_t k : {0, 3}) {
    const absl::StatusOr<PipelineLayout> pipeline = Fit({.recompute_every = k}, 0);
    EXPECT_EQ(LongestLength(pipeline->recompute), k);
  }
  const absl::Status unknown = Fit({.recompute_auto = true}, 0).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(unknown.message().find("which a plan does not know"), std::string::npos) << unknown;
}

TEST_F(MemoryFitTest, ALimitIsHeldToTheByte) {
  for (const int32_t k : {0, 3}) {
    ASSERT_TRUE(Fit({.recompute_every = k}, Bytes(k)).ok());
    EXPECT_EQ(LongestLength(Fit({.recompute_every = k}, Bytes(k))->recompute), k);
    EXPECT_EQ(Fit({.recompute_every = k}, Bytes(k) - 1).status().code(), absl::StatusCode::kResourceExhausted);
  }
}

// "0.00 GiB" would be no help.
TEST_F(MemoryFitTest, SmallModelsAreToldOfInMebibytes) {
  const std::string message(Fit({}, Bytes(0) - 1).status().message());
  EXPECT_EQ(message.find("GiB"), std::string::npos) << message;
  EXPECT_NE(
      message.find(absl::StrFormat(" needs %.1f MiB (%d bytes)", static_cast<double>(Bytes(0)) / (1 << 20), Bytes(0))),
      std::string::npos)
      << message;
  const BatchOptions large{.micro_batches = 4, .source_tokens = 1 << 18, .target_tokens = 1 << 18};
  const std::string gigabytes(
      MakeFittingLayout(plan_, large, {}, kRanks, 0, {.memory_limit_bytes = 1}, stream_).status().message());
  const int64_t bytes = std::stoll(gigabytes.substr(gigabytes.find('(') + 1));
  EXPECT_NE(gigabytes.find(absl::StrFormat(" needs %.2f GiB (", static_cast<double>(bytes) / (1 << 30))),
            std::string::npos)
      << gigabytes;
}

TEST_F(MemoryFitTest, EachRankRecomputesAsLittleAsItsMemoryAsks) {
  const int32_t even = MakePipelineLayout(plan_, kBatch, {}, kRanks)->borders[1];
  const PipelineOptions automatic{.split = {even}, .recompute_auto = true};
  const int64_t without = Bytes(0);
  EXPECT_EQ(LongestLength(Fit(automatic, without)->recompute), 0);
  EXPECT_EQ(LongestLength(Fit({.recompute_every = 3, .recompute_auto = true}, without)->recompute), 0);
  const PipelineLayout tighter = Fit(automatic, without - 1).value();
  EXPECT_EQ(RecomputedOf(tighter, 0), 1) << "of the rank with more live micro-batches";
  EXPECT_EQ(RecomputedOf(tighter, 1), 0);
  EXPECT_EQ(tighter.analytic_bubble, ReplayOf(tighter).BubbleFraction());
  EXPECT_LE(StepLength(Fit({.recompute_auto = true}, without - 1).value()), StepLength(tighter));
  for (const ArenaLayout& layout : TrainingLayouts(plan_, tighter, stream_).value()) {
    EXPECT_LT(LimitedBytes(layout, DeviceKind::kCpu), without);
  }
}

// And a limit below the fewest bytes names them.
TEST_F(MemoryFitTest, TheLimitThatNothingMeetsIsRefusedWithTheLeastThatCould) {
  const PipelineOptions automatic{.recompute_auto = true};
  const std::string message(Fit(automatic, 1).status().message());
  const size_t place = message.find("needs at least");
  ASSERT_NE(place, std::string::npos) << message;
  const int64_t least = std::stoll(message.substr(message.find('(', place) + 1));
  for (const int32_t k : {1, 2, 3, 4, 6, 8, 12, 16, 24}) EXPECT_GE(Bytes(k), least) << k;
  ASSERT_TRUE(Fit(automatic, least).ok());
  EXPECT_EQ(Fit(automatic, least - 1).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(MemoryFitTest, GroupSumsThatMoreReplicasWouldSpareAreNamed) {
  const BatchOptions batch{.micro_batches = 4, .sum_groups = 4, .source_tokens = 64, .target_tokens = 64};
  for (const int replicas : {1, 2, 4}) {
    const PipelineOptions options{.replicas = replicas};
    const std::string message(
        MakeFittingLayout(plan_, batch, options, replicas, 0, {.memory_limit_bytes = 1}, stream_).status().message());
    EXPECT_EQ(message.find("More pipeline.replicas keep fewer group sums") != std::string::npos, replicas < 4)
        << message;
  }
}

// On a device a kept segment has other bytes than its sublayers have as segments.
TEST_F(MemoryFitTest, EveryLimitBetweenTheFewestBytesAndAllIsMet) {
  ModelPlan plan = plan_;
  plan.compute_storage = Storage::kBFloat16;
  const Stream device = Stream::ForLayouts(DeviceKind::kCuda, 1);
  PipelineLayout pipeline = MakePipelineLayout(plan, kBatch, {.recompute_every = 1}, kRanks).value();
  const int64_t least = RecomputeToFit(plan, 0, device, pipeline).bytes;
  const int64_t most = std::ranges::max(pipeline.recompute_fit.bytes_without);
  for (int i = 0; i <= 16; ++i) {
    const int64_t limit = least + (most - least) * i / 16;
    RecomputeToFit(plan, limit, device, pipeline);
    for (const ArenaLayout& layout : TrainingLayouts(plan, pipeline, device).value()) {
      EXPECT_LE(LimitedBytes(layout, DeviceKind::kCuda), limit) << i;
    }
    EXPECT_NEAR(pipeline.recompute_fit.gap, 0, 1e-9) << "so few segments are chosen exactly";
  }
}

// Of more than kExactSegments, what is left open is stated.
TEST_F(MemoryFitTest, TheGapOfADeepModelIsBelowAPercent) {
  ModelOptions model = Model();
  model.encoder_layers = 80, model.decoder_layers = 1;
  const ModelPlan plan = ModelPlan::Make(model);
  PipelineLayout pipeline = MakePipelineLayout(plan, kBatch, {.split = {81}, .recompute_every = 1}, kRanks).value();
  const int64_t least = RecomputeToFit(plan, 0, stream_, pipeline).bytes;
  const int64_t most = std::ranges::max(pipeline.recompute_fit.bytes_without);
  RecomputeToFit(plan, (least + most) / 2, stream_, pipeline);
  EXPECT_GT(pipeline.recompute_fit.gap, 0);
  EXPECT_LT(pipeline.recompute_fit.gap, 0.01);
}

// What a recomputed segment has is read while the next one is recomputed.
TEST_F(MemoryFitTest, GradientsOfWeightsBesideNeedTwoPlacesForRecomputedSegments) {
  const Stream device = Stream::ForLayouts(DeviceKind::kCuda, 1);
  const auto activations = [&](bool beside) {
    const PipelineLayout pipeline =
        MakePipelineLayout(plan_, kBatch, {.recompute_every = 1, .overlap_weight_gradients = beside}, kRanks).value();
    const std::vector<ArenaLayout> layouts = TrainingLayouts(plan_, pipeline, device).value();
    int64_t bytes = 0;
    for (const ArenaLayout::Category& category : layouts[0].categories()) {
      if (category.name == "activations") bytes += category.bytes;
    }
    return bytes;
  };
  EXPECT_GT(activations(true), activations(false));
}

// Of a model of 12 sublayers, on 2 and 3 ranks: the shortest step of all cuts and choices.
TEST_F(MemoryFitTest, TheCutIsTheBestOfAllCuts) {
  ModelOptions model = Model();
  model.encoder_layers = 3, model.decoder_layers = 2;
  const ModelPlan plan = ModelPlan::Make(model);
  const auto sublayers = static_cast<int32_t>(plan.sublayers.size());
  for (const int ranks : {2, 3}) {
    const auto make = [&](const std::vector<int32_t>& borders) {
      PipelineOptions options{.recompute_every = 1};
      if (!borders.empty()) options.split.assign(borders.begin() + 1, borders.end() - 1);
      return MakePipelineLayout(plan, kBatch, options, ranks);
    };
    std::vector<std::vector<int32_t>> cuts;
    for (int32_t a = 1; a < sublayers; ++a) {
      for (int32_t b = a + 1; b <= sublayers; ++b) {
        std::vector<int32_t> borders{0, a, b};
        if ((ranks == 2) != (b == sublayers)) continue;
        if (ranks == 3) borders.push_back(sublayers);
        if (make(borders).ok()) cuts.push_back(borders);
      }
    }
    PipelineLayout even = make({}).value();
    const int64_t least = RecomputeToFit(plan, 0, stream_, even).bytes;
    const int64_t most = std::ranges::max(even.recompute_fit.bytes_without);
    for (int i = 0; i <= 8; ++i) {
      const int64_t limit = least + (most - least) * i / 8;
      PipelineLayout moved = make({}).value();
      EXPECT_LE(RecomputeToFit(plan, limit, stream_, moved, make, /*threads=*/2).bytes, limit);
      double best = std::numeric_limits<double>::infinity();
      for (const std::vector<int32_t>& borders : cuts) {
        PipelineLayout pipeline = make(borders).value();
        if (RecomputeToFit(plan, limit, stream_, pipeline).bytes > limit) continue;
        best = std::min(best, StepLength(pipeline));
      }
      EXPECT_DOUBLE_EQ(StepLength(moved), best) << ranks << " ranks, " << i;
    }
  }
}

TEST_F(MemoryFitTest, EveryRankHasItsOwnReplicasPlan) {
  const PipelineOptions options{.replicas = kRanks, .recompute_auto = true};
  const PipelineLayout roomy = Fit(options, int64_t{1} << 40).value();
  const int64_t bytes = TrainingLayouts(plan_, roomy, stream_).value()[0].total_bytes();
  for (int rank = 0; rank < kRanks; ++rank) {
    for (const int64_t limit_bytes : {bytes, bytes - 1}) {  // the second asks for recomputation
      const absl::StatusOr<PipelineLayout> pipeline = Fit(options, limit_bytes, rank);
      EXPECT_EQ(pipeline->replica, rank);
    }
  }
}

// In the order of the world's ranks, however stages and replicas are placed on them.
TEST_F(MemoryFitTest, LayoutsAreThoseOfTheWorldsRanks) {
  for (const Placement placement : {Placement::kReplicasTogether, Placement::kStagesTogether}) {
    const PipelineLayout first =
        MakePipelineLayout(plan_, kBatch, {.stages = 2, .replicas = 2, .placement = placement}, 4).value();
    const std::vector<ArenaLayout> layouts = TrainingLayouts(plan_, first, stream_).value();
    ASSERT_EQ(layouts.size(), 4u);
    ASSERT_NE(layouts[0].total_bytes(), layouts[3].total_bytes());
    for (int rank = 0; rank < 4; ++rank) {
      const PipelineLayout own = LayoutOfReplica(first, first.grid.ReplicaOf(rank)).value();
      const RankParts parts(plan_, own, first.grid.StageOf(rank), stream_, Purpose::kTraining);
      EXPECT_EQ(layouts[rank].total_bytes(), parts.layout.total_bytes()) << rank;
    }
  }
}

}  // namespace
}  // namespace hadal
