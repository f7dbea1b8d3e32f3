// How a model lies on its ranks, read off the plan (data_parallel_test.cc: what a plan refuses).
#include "pipeline/layout/pipeline_layout.h"

#include <numeric>

#include "gmock/gmock.h"
#include "layers/method_presets.h"
#include "tests/support/tiny_plan.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Sublayers: source embedding, 2 × 2 of the encoder, target embedding 5, 2 × 3 of the decoder, head 12.
ModelPlan Plan(EmbeddingSharing sharing = EmbeddingSharing::kAll) {
  ModelOptions model = TinyModel({.encoder_layers = 2,
                                  .decoder_layers = 2,
                                  .d_model = 10,
                                  .d_ff = 30,
                                  .heads = 2,
                                  .vocabulary = 50,
                                  .max_positions = 12});
  model.sharing = sharing;
  return ModelPlan::Make(model);
}

constexpr BatchOptions kBatch{.micro_batches = 7, .source_tokens = 20, .target_tokens = 16};

PipelineLayout LayoutOf(const ModelPlan& plan, const PipelineOptions& options, int ranks, int rank = 0) {
  return MakePipelineLayout(plan, kBatch, options, ranks, rank).value();
}

TEST(ShareOf, SharesAreConsecutiveCoverTheListAndDifferByAtMostOne) {
  for (int count = 1; count <= 40; ++count) {
    for (int replicas = 1; replicas <= count; ++replicas) {
      int next = 0, fewest = count, most = 0;
      for (int replica = 0; replica < replicas; ++replica) {
        const Share share = ShareOf(count, replicas, replica);
        EXPECT_EQ(share.first, next);
        next += share.count;
        fewest = std::min(fewest, share.count);
        most = std::max(most, share.count);
      }
      EXPECT_EQ(next, count);
      EXPECT_GE(fewest, 1);
      EXPECT_LE(most - fewest, 1) << count << " over " << replicas;
    }
  }
}

TEST(PipelineLayout, EverySublayerLiesInOneChunkOfTheRankThatIsSaidToHoldIt) {
  const ModelPlan plan = Plan();
  const std::pair<PipelineOptions, int> layouts[] = {
      {{}, 1}, {{}, 3}, {{}, 13}, {{.chunks = 3, .schedule = ScheduleKind::kInterleaved1F1B}, 2}, {{.replicas = 2}, 6}};
  for (const auto& [options, ranks] : layouts) {
    const PipelineLayout pipeline = LayoutOf(plan, options, ranks);
    std::vector<int> found(plan.sublayers.size(), 0);
    for (int rank = 0; rank < pipeline.grid.stages; ++rank) {
      for (int chunk = 0; chunk < pipeline.shape.chunks; ++chunk) {
        EXPECT_LT(pipeline.first_sublayer(rank, chunk), pipeline.last_sublayer(rank, chunk));
        for (int32_t s = pipeline.first_sublayer(rank, chunk); s < pipeline.last_sublayer(rank, chunk); ++s) {
          EXPECT_EQ(pipeline.RankOfSublayer(s), rank);
          ++found[s];
        }
      }
    }
    EXPECT_EQ(found, std::vector<int>(plan.sublayers.size(), 1));
  }
}

// 2^31 bytes are 25 million rows of fp32 at width 10, twice that where a border carries the encoder's output besides.
TEST(PipelineLayout, RefusesMessagesThatMpiCannotSend) {
  const ModelPlan plan = Plan();
  BatchOptions batch{.micro_batches = 2, .source_tokens = 60'000'000, .target_tokens = 60'000'000};
  EXPECT_TRUE(MakePipelineLayout(plan, batch, {}, 1).ok()) << "one stage sends nothing";
  EXPECT_TRUE(MakePipelineLayout(plan, batch, {}, 2, 0, {.device_transfers = true}).ok()) << "NCCL counts in 64 bits";
  EXPECT_TRUE(MakePipelineLayout(plan, batch, {}, 2, 0, {.trains = false}).ok()) << "decoding sends other messages";
  const absl::Status refused = MakePipelineLayout(plan, batch, {}, 2).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr("2147483647 of an MPI message"));
  batch.source_tokens = batch.target_tokens = 20'000'000;
  EXPECT_TRUE(MakePipelineLayout(plan, batch, {}, 2).ok());
}

// The number of ranks to start is named only where the model can be cut so.
TEST(PipelineLayout, RefusesAnotherNumberOfRanksWithOneThatWorks) {
  const ModelPlan plan = Plan();
  const auto error = [&](int stages) {
    return std::string(MakePipelineLayout(plan, kBatch, {.stages = stages}, /*ranks=*/1).status().message());
  };
  EXPECT_THAT(error(3), HasSubstr("1 rank was started. Start `mpirun -n 3`"));
  EXPECT_THAT(error(50), AllOf(HasSubstr("use fewer stages"), Not(HasSubstr("mpirun"))));
}

// Where the number of stages is the number of ranks the config cannot be asked.
TEST(PipelineLayout, ASplitHasAnEntryForEachChunkButTheFirst) {
  const ModelPlan plan = Plan();
  EXPECT_TRUE(MakePipelineLayout(plan, kBatch, {.split = {5, 12}}, 3).ok());
  for (const int ranks : {1, 2, 4}) {
    const absl::Status refused = MakePipelineLayout(plan, kBatch, {.split = {5, 12}}, ranks).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()),
                ::testing::AllOf(::testing::HasSubstr("pipeline.split has 2 entries"),
                                 ::testing::HasSubstr(" chunks need " + std::to_string(ranks - 1))));
  }
}

TEST(PipelineLayout, ATiedTableBelongsToItsFirstUsesStage) {
  const ModelPlan tied = Plan(), apart = Plan(EmbeddingSharing::kNone);
  const PipelineOptions options{.split = {5, 12}};
  const PipelineLayout of_tied = LayoutOf(tied, options, 3), of_apart = LayoutOf(apart, options, 3);
  EXPECT_EQ(of_tied.OwnerOf(tied, tied.sublayers[12].table), 0);
  EXPECT_EQ(of_apart.OwnerOf(apart, apart.sublayers[0].table), 0);
  EXPECT_EQ(of_apart.OwnerOf(apart, apart.sublayers[5].table), 1);
  EXPECT_EQ(of_apart.OwnerOf(apart, apart.sublayers[12].table), 2);
}

// 7 micro-batches over 3 replicas: shares of 3, 2 and 2, so that programs differ.
TEST(PipelineLayout, AnotherReplicasPlanIsWhatItsRanksMake) {
  const ModelPlan plan = Plan();
  for (const Placement placement : {Placement::kReplicasTogether, Placement::kStagesTogether}) {
    const PipelineOptions options{.replicas = 3, .placement = placement};
    const PipelineLayout first = LayoutOf(plan, options, 6);
    EXPECT_EQ(first.shape.micro_batches, 3);
    for (int replica = 0; replica < 3; ++replica) {
      const PipelineLayout made = LayoutOfReplica(first, replica).value();
      for (int stage = 0; stage < 2; ++stage) {
        const PipelineLayout own = LayoutOf(plan, options, 6, first.grid.RankOf(stage, replica));
        EXPECT_EQ(made.replica, own.replica);
        EXPECT_EQ(made.shape.micro_batches, own.shape.micro_batches);
        EXPECT_EQ(made.borders, own.borders);
        EXPECT_EQ(made.programs, own.programs);
        EXPECT_EQ(made.peak_live, own.peak_live);
        EXPECT_EQ(made.peak_pending, own.peak_pending);
        EXPECT_EQ(made.analytic_bubble, own.analytic_bubble);
      }
    }
  }
}

// What is recomputed has memory for one weight half.
// Of a decoder of 24 sublayers in blocks of 3: one chunk a rank receives the blocks so far, the embedding and, within a
// block, the open sum; of several chunks each receives what was finished since the rank's chunk before. Backward all
// gradients come.
TEST(PipelineLayout, ARankReceivesNoSumOfABlockTwice) {
  ModelOptions options{
      .encoder_layers = 0, .decoder_layers = 12, .d_model = 10, .d_ff = 30, .heads = 2, .target_vocabulary = 50};
  ApplyResidualMethod(ResidualMethod::kAttnRes, options);
  options.decoder.attention_residual_block_sublayers = 3;
  const ModelPlan plan = ModelPlan::Make(options);
  const auto layout_of = [&](int ranks, int chunks, std::vector<int32_t> split) {
    PipelineOptions pipeline{.chunks = chunks, .split = std::move(split)};
    if (chunks > 1) pipeline.schedule = ScheduleKind::kInterleaved1F1B;
    return LayoutOf(plan, pipeline, ranks);
  };
  const auto entries = [&](const PipelineLayout& pipeline, bool gradients) {
    std::vector<std::pair<int64_t, size_t>> entries;  // of the history, and all edges
    for (int g = 1; g < pipeline.shape.global_chunks(); ++g) {
      const std::vector<Edge> edges = EdgesInFrontOf(plan, pipeline, g);
      entries.emplace_back(edges[0].entries_of(gradients), edges.size());
    }
    return entries;
  };
  using Entries = std::vector<std::pair<int64_t, size_t>>;
  EXPECT_EQ(entries(layout_of(3, 1, {8, 16}), false), (Entries{{3, 2}, {6, 1}}));
  const PipelineLayout interleaved = layout_of(2, 3, {5, 9, 13, 17, 21});
  // Sublayer 1 is the first: 4, 8, 12, 16, 20 of the stack lie in front of the borders.
  EXPECT_EQ(entries(interleaved, false), (Entries{{2, 2}, {3 - 2, 2}, {5 - 3, 1}, {6 - 5, 2}, {7 - 6, 2}}));
  EXPECT_EQ(entries(interleaved, true), (Entries{{2, 2}, {3, 2}, {5, 1}, {6, 2}, {7, 2}}));
  EXPECT_EQ(entries(layout_of(1, 2, {7}), false), (Entries{{0, 1}})) << "a rank sends itself nothing";
}

TEST(PipelineLayout, WithRecomputationNoSecondWeightHalfWaits) {
  const ModelPlan plan = Plan();
  for (const ScheduleKind kind : AllScheduleKinds()) {
    for (const int recompute_every : {0, 2}) {
      const PipelineOptions options{.schedule = kind, .recompute_every = recompute_every};
      const PipelineLayout made = LayoutOf(plan, options, 3);
      const bool waits = kind == ScheduleKind::kZbH1 || kind == ScheduleKind::kInterleavedZb;
      const int most = !SplitsBackward(kind) ? 0 : waits && recompute_every == 0 ? 3 : 1;
      EXPECT_THAT(made.peak_pending, ::testing::ElementsAre(0, std::min(most, 2), most)) << ToString(kind);
      EXPECT_EQ(made.schedule == kind, !waits || recompute_every == 0) << ToString(kind);
    }
  }
}

// Stages of costs a < b. Stage 1 begins when stage 0 has run a forward, and is busy with 2 forwards and 2 backwards of
// twice that; then stage 0 runs its last backward: a + 6b + 2a, in which both work for 6a + 6b.
TEST(PipelineLayout, TheExpectedBubbleIsThatOfTheStagesCosts) {
  const BatchOptions batch{.micro_batches = 2, .source_tokens = 20, .target_tokens = 16};
  const PipelineLayout made = MakePipelineLayout(Plan(), batch, {.split = {5}}, 2).value();
  const double a = std::accumulate(made.costs.begin(), made.costs.begin() + 5, 0.0);
  const double b = std::accumulate(made.costs.begin() + 5, made.costs.end(), 0.0);
  ASSERT_LT(a, b);
  EXPECT_NEAR(made.analytic_bubble, 1 - (6 * a + 6 * b) / (2 * (3 * a + 6 * b)), 1e-12);
}

// Its memory is part of the plan, and its graphs are launched where training's are.
TEST(PipelineLayout, AValidationsSearchIsForSourcesThatTrainingHasRoomFor) {
  const ModelPlan plan = Plan();  // of 12 positions
  const auto decoder = [&plan](int32_t longest_source, int32_t source_tokens, GraphMode graphs) {
    const BatchOptions batch{.micro_batches = 1, .source_tokens = source_tokens, .target_tokens = 16};
    const PipelineOptions options{.graphs = graphs, .decoder = DecoderOptions{.longest_source = longest_source}};
    const PipelineLayout made = MakePipelineLayout(plan, batch, options, 1).value();
    EXPECT_EQ(made.decode_capacity.longest_source, made.decoder->longest_source);
    return *made.decoder;
  };
  EXPECT_EQ(decoder(5, 20, GraphMode::kAuto).longest_source, 5);
  EXPECT_EQ(decoder(512, 20, GraphMode::kAuto).longest_source, 12);
  EXPECT_EQ(decoder(512, 8, GraphMode::kAuto).longest_source, 8) << "fewer rows than a target's, and than positions";
  EXPECT_TRUE(decoder(5, 20, GraphMode::kAuto).graphs);
  EXPECT_FALSE(decoder(5, 20, GraphMode::kOff).graphs);
}

TEST(CapacityOf, ALanguageModelHasNoSourceAndNoSentenceIsLongerThanItsPositions) {
  ModelOptions model = Plan().options;
  const ActivationCapacity pairs = CapacityOf(model, kBatch);
  EXPECT_EQ(pairs.source_rows, 20);
  EXPECT_EQ(pairs.target_rows, 16);
  EXPECT_EQ(pairs.max_length, 12);
  model.encoder_layers = 0;
  model.max_positions = 1000;
  const ActivationCapacity text = CapacityOf(model, kBatch);
  EXPECT_EQ(text.source_rows, 0);
  EXPECT_EQ(text.max_length, 16);
}

// 20 source and 16 target rows of 10, keys of 8 a query (on average 4 before it). Multiply-adds of each product,
// written out:
TEST(SublayerCosts, CountTheMultiplyAddsOfTheProducts) {
  const std::vector<double> costs =
      SublayerCosts(Plan(), {.source_rows = 20, .target_rows = 16, .max_length = 12}, /*length=*/8);
  ASSERT_EQ(costs.size(), 13u);
  const double projection = 10 * 10;  // of one row
  EXPECT_DOUBLE_EQ(costs[1], 20 * (4 * projection + 8 * 10 + 8 * 10)) << "q, k, v, out; scores; output";
  EXPECT_DOUBLE_EQ(costs[2], 20 * (10 * 30 + 30 * 10));
  EXPECT_DOUBLE_EQ(costs[6], 16 * (4 * projection + 4 * 10 + 4 * 10)) << "causal: half of the keys";
  EXPECT_DOUBLE_EQ(costs[7], 16 * (2 * projection + 8 * 10 + 8 * 10) + 20 * 2 * projection) << "k, v of the memory";
  EXPECT_DOUBLE_EQ(costs[8], 16 * (10 * 30 + 30 * 10));
  EXPECT_DOUBLE_EQ(costs[12], 16 * 10 * 50);
}

// A layer's first sublayer reads the outputs of all layers before it, the stack's last one all: an element each takes
// the time of 32 multiply-adds.
TEST(SublayerCosts, CountTheOutputsThatACombinationReads) {
  const ActivationCapacity capacity{.source_rows = 20, .target_rows = 16, .max_length = 12};
  ModelOptions options = Plan().options;
  ApplyResidualMethod(ResidualMethod::kPreLn, options);
  std::vector<double> expected = SublayerCosts(ModelPlan::Make(options), capacity, /*length=*/8);
  const std::pair<int, int> combined[] = {{1, 20 * 1}, {3, 20 * 2}, {4, 20 * 3},
                                          {6, 16 * 1}, {9, 16 * 2}, {11, 16 * 3}};
  for (const auto& [sublayer, rows] : combined) expected[sublayer] += rows * 10 * 32;
  ApplyResidualMethod(ResidualMethod::kDlclPre, options);
  EXPECT_THAT(SublayerCosts(ModelPlan::Make(options), capacity, /*length=*/8),
              ::testing::Pointwise(::testing::DoubleEq(), expected));
}

// A row comes from 2 inner ones: 5 taps of 4 features each, to 8 channels. A gate leaves 4; then 5 taps of these, to
// twice the width.
TEST(SublayerCosts, CountTheConvolutionsInFrontOfSpeech) {
  ModelOptions options = Plan().options;
  options.source_vocabulary = 0;
  options.frame_width = 4;
  options.front_end_channels = 8;
  const std::vector<double> costs =
      SublayerCosts(ModelPlan::Make(options), {.source_rows = 20, .target_rows = 16, .max_length = 12}, /*length=*/8);
  EXPECT_DOUBLE_EQ(costs[0], 20 * (10 + 2 * (5 * 4 * 8) + 5 * 4 * 20));
  EXPECT_DOUBLE_EQ(costs[5], 16 * 10) << "a lookup";
}

}  // namespace
}  // namespace hadal
