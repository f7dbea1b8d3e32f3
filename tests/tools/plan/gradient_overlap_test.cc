#include "tools/plan/gradient_overlap.h"

#include <gmock/gmock.h>

#include <numeric>
#include <random>

#include "layers/method_presets.h"
#include "layers/parameter_store.h"
#include "pipeline/engine/engine.h"
#include "pipeline/exchange/replica_buckets.h"
#include "pipeline/layout/slice_ownership.h"
#include "tests/support/tiny_plan.h"
#include "tools/plan/cost_files.h"
#include "tools/plan/layout_prediction.h"

namespace hadal {
namespace {

// An element of one replica takes a second on a link of 4 bytes a second.
constexpr LinkRate kSecondAnElement{.bytes_per_second = 4};

TEST(SummedSeconds, APieceWaitsForItsCompletionAndForTheLink) {
  // Owner 1 receives its pieces over [2, 5) and [5, 9), since the link is busy when the second is complete, and adds
  // over [9, 11). Owner 0 receives over [7, 9): nobody else is on its link.
  const GradientPiece pieces[] = {{0, 2, 1, 3}, {1, 3, 1, 4}, {2, 7, 0, 2}};
  const ReplicaLinks links{.near = kSecondAnElement, .near_pieces = 1, .sum_seconds = 0.5};
  EXPECT_DOUBLE_EQ(SummedSeconds(pieces, links), 11);
  EXPECT_DOUBLE_EQ(SummedSeconds({pieces, 1}, links), 6.5);
  EXPECT_DOUBLE_EQ(SummedSeconds({&pieces[2], 1}, links), 10);
  EXPECT_DOUBLE_EQ(SummedSeconds({}, links), 0);
}

TEST(SummedSeconds, AnOwnerReceivesFromItsNodeAndFromOthersAtOnce) {
  const GradientPiece pieces[] = {{0, 1, 0, 2}};
  const LinkRate far{.bytes_per_second = 2, .latency_seconds = 0.25};
  const ReplicaLinks links{.near = kSecondAnElement, .far = far, .near_pieces = 3, .far_pieces = 2, .sum_seconds = 0.1};
  EXPECT_DOUBLE_EQ(SummedSeconds(pieces, links), 1 + 2 * 2 * 2 + 0.25 + 5 * 2 * 0.1);
  EXPECT_DOUBLE_EQ(SummedSeconds(pieces, {.near = kSecondAnElement, .near_pieces = 3}), 1 + 3 * 2);
}

// A rank makes the calls of its rounds one after the other, once they are complete: over [2, 5), [5, 8) and [8, 11).
// The second is one round of both owners.
TEST(SummedSeconds, APieceWaitsForTheCallsOfTheRoundsBeforeIt) {
  const GradientPiece pieces[] = {{0, 2, 1, 3}, {1, 3, 0, 2}, {1, 3, 1, 4}, {2, 7, 0, 2}};
  const ReplicaLinks links{.near_pieces = 1, .sum_seconds = 0.5, .round_seconds = 3};
  EXPECT_DOUBLE_EQ(SummedSeconds(pieces, links), 12);
  EXPECT_DOUBLE_EQ(SummedSeconds({pieces, 3}, links), 10);
}

// Second by second: the link carries an element a second, of the first piece that is complete and not yet there; adding
// takes one too.
double SecondBySecond(const std::vector<GradientPiece>& pieces, int replicas) {
  double end = 0;
  for (int owner = 0; owner < replicas; ++owner) {
    std::vector<GradientPiece> own;
    std::copy_if(pieces.begin(), pieces.end(), std::back_inserter(own),
                 [&](const auto& p) { return p.owner == owner; });
    std::vector<double> to_receive, to_add;
    for (const GradientPiece& piece : own) {
      to_receive.push_back(piece.elements * (replicas - 1));
      to_add.push_back(piece.elements * (replicas - 1));
    }
    size_t received = 0, added = 0;
    for (int now = 0; added < own.size(); ++now) {
      const size_t received_before = received;
      if (received < own.size() && own[received].complete_seconds <= now && --to_receive[received] == 0) ++received;
      if (added < received_before && --to_add[added] == 0) ++added;
      if (added == own.size()) end = std::max<double>(end, now + 1);
    }
  }
  return end;
}

TEST(SummedSeconds, IsWhatGoingSecondBySecondFinds) {
  std::mt19937 draw(1);
  const auto below = [&draw](int n) { return static_cast<int>(draw() % static_cast<unsigned>(n)); };
  for (int trial = 0; trial < 300; ++trial) {
    const int replicas = 2 + below(3);
    std::vector<GradientPiece> pieces;
    double complete = 0;
    for (int count = 1 + below(12); count > 0; --count) {
      complete += below(12);
      pieces.push_back({count, complete, below(replicas), 1.0 + below(5)});
    }
    const ReplicaLinks links{.near = kSecondAnElement, .near_pieces = replicas - 1.0, .sum_seconds = 1};
    EXPECT_DOUBLE_EQ(SummedSeconds(pieces, links), SecondBySecond(pieces, replicas)) << "trial " << trial;
  }
}

TEST(GatherBehindUpdate, IsWhatGoingRoundByRoundFinds) {
  for (const auto& [update, gather] : {std::pair(1.0, 8.0), {8.0, 1.0}, {3.0, 3.0}, {0.0, 2.0}, {2.0, 0.0}}) {
    for (const int rounds : {1, 2, 7}) {
      double updated = 0, gathered = 0;
      for (int round = 0; round < rounds; ++round) {
        updated += update / rounds;
        gathered = std::max(gathered, updated) + gather / rounds;
      }
      EXPECT_NEAR(update + GatherBehindUpdate({update, gather, rounds, rounds}), gathered, 1e-12)
          << update << ", " << gather << ", " << rounds << " rounds";
    }
  }
  // Two exchanges follow that of the last round.
  EXPECT_DOUBLE_EQ(GatherBehindUpdate({.update_seconds = 9, .gather_seconds = 6, .rounds = 4, .exchanges = 6}), 3);
}

// 2·2 + 4·3 + 3 = 19 sublayers.
ModelOptions SmallOptions(EmbeddingSharing sharing) {
  ModelOptions options =
      TinyModel({.encoder_layers = 2, .decoder_layers = 4, .d_model = 64, .d_ff = 256, .heads = 4, .vocabulary = 200});
  options.sharing = sharing;
  ApplyResidualMethod(ResidualMethod::kDeepNorm, options);
  return options;
}

class GradientPiecesTest : public ::testing::Test {
 protected:
  explicit GradientPiecesTest(EmbeddingSharing sharing = EmbeddingSharing::kNone) : options_(SmallOptions(sharing)) {}

  // The pieces of a stage when every sublayer takes a second forward and two backward; `last`: the span of its last
  // backward.
  std::vector<GradientPiece> Pieces(PipelineOptions pipeline, int stage, int32_t most_parts) {
    model_ = ModelPlan::Make(options_);
    plan_ = MakePipelineLayout(model_, {.micro_batches = 8, .source_tokens = 64, .target_tokens = 64}, pipeline,
                               pipeline.stages * pipeline.replicas)
                .value();
    const std::vector<SublayerSeconds> sublayers(model_.sublayers.size(), {1, 0, 2});
    ReplayCosts costs;
    for (int g = 0; g < plan_.shape.global_chunks(); ++g) {
      costs.forward_seconds.push_back(plan_.borders[g + 1] - plan_.borders[g]);
      costs.backward_seconds.push_back(2 * costs.forward_seconds.back());
    }
    replay_ = ReplaySchedule(plan_.programs, plan_.shape, costs, {.outstanding_sends = 2}).value();
    return GradientPieces(model_, plan_, stage, sublayers, replay_, most_parts);
  }
  // Of each round of the first stage.
  std::map<int, int32_t> FirstSublayers() const {
    std::map<int, int32_t> first;
    for (const OwnedSlice& slice : SlicesOfStage(model_, plan_, 0)) {
      first.emplace(slice.round, model_.parameters[slice.parameter].sublayer);
    }
    return first;
  }
  static double Elements(const std::vector<GradientPiece>& pieces) {
    return std::accumulate(pieces.begin(), pieces.end(), 0.0,
                           [](double sum, const auto& p) { return sum + p.elements; });
  }

  ModelOptions options_;
  ModelPlan model_;
  PipelineLayout plan_;
  Replay replay_;
};

TEST_F(GradientPiecesTest, OnACpuARoundIsCompleteWithItsFirstSublayer) {
  const std::vector<GradientPiece> pieces = Pieces({.stages = 1, .replicas = 2}, 0, 1 << 20);
  EXPECT_DOUBLE_EQ(Elements(pieces), static_cast<double>(model_.ParameterElements()));
  // The last backward's 38 seconds end with the step's computation: the last sublayer is complete after two of them,
  // the first at the end.
  const double end = replay_.makespan_seconds;
  std::map<int, int32_t> first = FirstSublayers();
  ASSERT_GT(first.size(), 2u);
  for (const GradientPiece& piece : pieces) {
    EXPECT_DOUBLE_EQ(piece.complete_seconds, end - 2 * first[piece.round]) << "round " << piece.round;
  }
  // Of what is complete after half of the time each replica has at least a third.
  double owned[2] = {0, 0};
  for (const GradientPiece& piece : pieces) {
    if (piece.complete_seconds <= end - 19) owned[piece.owner] += piece.elements;
  }
  EXPECT_GE(std::min(owned[0], owned[1]), (owned[0] + owned[1]) / 3);
}

TEST_F(GradientPiecesTest, ADeviceLetsGoInSixteenParts) {
  // ⌈19 / 16⌉ = 2 sublayers a part, and one in the part of the first sublayer, the source embedding.
  const std::vector<GradientPiece> pieces = Pieces({.stages = 1, .replicas = 2}, 0, 16);
  EXPECT_DOUBLE_EQ(Elements(pieces), static_cast<double>(model_.ParameterElements()));
  const double end = replay_.makespan_seconds;
  std::map<int, int32_t> first = FirstSublayers();
  for (const GradientPiece& piece : pieces) {
    const int32_t part_begin = first[piece.round] == 0 ? 0 : (first[piece.round] - 1) / 2 * 2 + 1;
    EXPECT_DOUBLE_EQ(piece.complete_seconds, end - 2 * part_begin) << "round " << piece.round;
  }
}

TEST_F(GradientPiecesTest, EveryChunksLastBackwardLetsItsOwnGo) {
  options_.d_model = 512;  // rounds smaller than a chunk
  options_.d_ff = 2048;
  const PipelineOptions pipeline{.stages = 2, .replicas = 2, .chunks = 2, .schedule = ScheduleKind::kInterleaved1F1B};
  const std::vector<GradientPiece> pieces = Pieces(pipeline, 0, 16);
  // Chunk 1 of the rank ends before chunk 0 does: replicas sum it meanwhile.
  const double begin_of_last = replay_.spans[0].back().begin_seconds;
  const auto early = std::count_if(pieces.begin(), pieces.end(),
                                   [&](const GradientPiece& p) { return p.complete_seconds <= begin_of_last; });
  EXPECT_GE(early, plan_.grid.replicas);
  EXPECT_TRUE(std::is_sorted(pieces.begin(), pieces.end(),
                             [](const auto& a, const auto& b) { return a.complete_seconds < b.complete_seconds; }));
}

TEST_F(GradientPiecesTest, ReplicasExchangeTheirRounds) {
  options_.d_model = 512;  // a matrix is a bucket, a feed-forward layer's is four
  options_.d_ff = 2048;
  for (const Storage storage : {Storage::kFloat32, Storage::kBFloat16}) {
    for (const int replicas : {2, 3, 5}) {
      Pieces({.stages = 2, .replicas = replicas}, 0, 16);
      model_.compute_storage = storage;
      for (const int stage : {0, 1}) {
        RankParts parts(model_, plan_, stage, Stream::Cpu(1), Purpose::kTraining);
        const auto arena = Arena::Allocate(parts.layout).value();
        ASSERT_TRUE(parts.stage.Bind(arena).ok());
        parts.state.Bind(arena, parts.stage.parameters());
        EXPECT_EQ(ReplicaRounds(model_, plan_, stage), std::ssize(MakeReplicaRounds(parts.state)))
            << replicas << " replicas, stage " << stage;
      }
    }
  }
}

// What docs/planning.md says of the model of 2,500 sublayers. A rank sends and receives each message of other replicas
// twice, as gradients and as weights, and both take a group a round (nccl_run_test counts them in runs).
TEST(ReplicaMessages, AreFewInTheModelOf2500Sublayers) {
  ModelOptions options = TinyModel(
      {.encoder_layers = 500, .decoder_layers = 500, .d_model = 512, .d_ff = 2048, .heads = 8, .vocabulary = 32000});
  ApplyResidualMethod(ResidualMethod::kDeepNorm, options);
  ModelPlan model = ModelPlan::Make(options);
  model.compute_storage = Storage::kBFloat16;
  const int replicas = 8;
  const auto plan =
      MakePipelineLayout(model, {.micro_batches = 64, .source_tokens = 64, .target_tokens = 64},
                         {.stages = 8, .replicas = replicas, .chunks = 6, .schedule = ScheduleKind::kInterleaved1F1B},
                         64)
          .value();
  for (int stage = 0; stage < 8; ++stage) {
    RankParts parts(model, plan, stage, Stream::Cpu(1), Purpose::kTraining);
    const auto arena = Arena::Allocate(parts.layout);  // nobody touches its pages
    ASSERT_TRUE(parts.stage.Bind(*arena).ok());
    parts.state.Bind(*arena, parts.stage.parameters());
    const std::vector<ReplicaRound> rounds = MakeReplicaRounds(parts.state);
    int most = 0;  // calls of one replica for gradients
    for (int replica = 0; replica < replicas; ++replica) {
      int calls = 0;
      for (const ReplicaRound& round : rounds) {
        for (const ReplicaBucket& bucket : round.buckets) calls += bucket.owner == replica ? replicas - 1 : 1;
      }
      most = std::max(most, calls);
    }
    EXPECT_LE(2 * most, 1000) << "stage " << stage;
    EXPECT_LE(2 * rounds.size(), 200u) << "stage " << stage;
    EXPECT_GE(2 * rounds.size(), 20u) << "stage " << stage << ": so few rounds hardly overlap the backward pass";
  }
}

class TiedGradientPiecesTest : public GradientPiecesTest {
 protected:
  TiedGradientPiecesTest() : GradientPiecesTest(EmbeddingSharing::kAll) {}
};

TEST_F(TiedGradientPiecesTest, ATableWaitsForAllStagesThatUseIt) {
  const std::vector<GradientPiece> pieces = Pieces({.stages = 2, .replicas = 2}, 0, 16);
  double table = 0, end = 0;
  for (const auto& spans : replay_.spans) end = std::max(end, spans.back().end_seconds);
  for (const GradientPiece& piece : pieces) table += piece.complete_seconds == end ? piece.elements : 0;
  EXPECT_GE(table, 200 * 64);
  EXPECT_DOUBLE_EQ(pieces.back().complete_seconds, end);
}

// From the other end: what a layout's prediction says when a link is fast enough for all but the last part.
TEST(LayoutPredictionTest, WhatIsCompleteLastIsExposed) {
  const ModelPlan model = ModelPlan::Make(SmallOptions(EmbeddingSharing::kNone));
  Machine machine{.name = "test",
                  .devices_per_node = 2,
                  .memory_bytes = int64_t{1} << 30,
                  .peak_flops = 1e12,
                  .matmul_flops = 5e11,
                  .attention_flops = 1e11,
                  .memory_bytes_per_second = 1e12,
                  .kernel_seconds = 1e-5,
                  .intra_node = {.bytes_per_second = 1e11, .latency_seconds = 3e-6}};
  const auto predict = [&](bool overlap) {
    machine.overlap = overlap;
    const auto costs = MakeRooflineCosts(machine).value();
    const BatchOptions batch{.micro_batches = 4, .source_tokens = 64, .target_tokens = 64};
    const auto plan = MakePipelineLayout(model, batch, {.stages = 1, .replicas = 2}, 2).value();
    return PredictLayout(model, batch, plan, {.costs = *costs, .devices_per_node = 2})->parts.reduction;
  };
  const auto seconds = [](double elements) { return elements * 4 / 1e11 + 3e-6; };
  const double adding = 3 * 4 / 1e12, half = 0.5 * static_cast<double>(model.ParameterElements());
  const auto plan = MakePipelineLayout(model, {.micro_batches = 4}, {.stages = 1, .replicas = 2}, 2);
  double last[2] = {0, 0};  // of the last round, each owner's
  for (const OwnedSlice& slice : SlicesOfStage(model, *plan, 0)) {
    if (slice.round + 1 == ReplicaRounds(model, *plan, 0)) last[slice.replica] += static_cast<double>(slice.elements);
  }
  const double exposed = std::max(last[0], last[1]);
  ASSERT_LT(exposed, half / 4);
  EXPECT_NEAR(predict(true), seconds(exposed) + exposed * adding + seconds(half), 1e-12);
  EXPECT_NEAR(predict(false), seconds(half) + half * adding + seconds(half), 1e-12);
  const auto costs = MakeRooflineCosts(machine).value();
  EXPECT_EQ(PredictLayout(model, {.micro_batches = 4}, *plan, {.costs = *costs, .devices_per_node = 2})->calls,
            4 * ReplicaExchanges(model, *plan, 0))
      << "a gradient there and back, and a weight";
}

// Of the first 7 of 8 groups: 12 bytes an element to move its gradients, 12 to add them.
TEST(LayoutPredictionTest, GroupsTakeTheirSums) {
  const ModelPlan model = ModelPlan::Make(SmallOptions(EmbeddingSharing::kNone));
  const auto costs = MakeRooflineCosts({.peak_flops = 1e12,
                                        .matmul_flops = 5e11,
                                        .attention_flops = 1e11,
                                        .memory_bytes_per_second = 1e9,
                                        .intra_node = {.bytes_per_second = 1e11}})
                         .value();
  const auto compute = [&](int groups) {
    const BatchOptions batch{.micro_batches = 16, .sum_groups = groups, .source_tokens = 64, .target_tokens = 64};
    const auto plan = MakePipelineLayout(model, batch, {}, 1).value();
    return PredictLayout(model, batch, plan, {.costs = *costs})->parts.compute;
  };
  const double bytes = 7 * 24 * static_cast<double>(model.ParameterElements());
  EXPECT_NEAR(compute(8) - compute(1), bytes / 1e9, 1e-9);
}

// 2^20 elements of 4 bytes a piece: 5 to the owner and back.
TEST(LayoutPredictionTest, OfATiedTablesPiecesTwoAreUnderWay) {
  ModelOptions options = TinyModel({.d_model = 64, .d_ff = 64, .vocabulary = 5 << 14});
  ApplyResidualMethod(ResidualMethod::kDeepNorm, options);
  const ModelPlan model = ModelPlan::Make(options);
  const BatchOptions batch{.micro_batches = 1, .source_tokens = 64, .target_tokens = 64};
  const auto plan = MakePipelineLayout(model, batch, {.stages = 2, .split = {3}}, 2).value();
  const auto reduction = [&](double latency, double call) {
    const auto costs = MakeRooflineCosts({.devices_per_node = 2,
                                          .peak_flops = 1e12,
                                          .matmul_flops = 5e11,
                                          .attention_flops = 1e11,
                                          .memory_bytes_per_second = 1e12,
                                          .call_seconds = call,
                                          .intra_node = {.bytes_per_second = 1 << 22, .latency_seconds = latency}})
                           .value();
    return PredictLayout(model, batch, plan, {.costs = *costs, .devices_per_node = 2})->parts.reduction;
  };
  EXPECT_DOUBLE_EQ(reduction(0.5, 0.25), 2 * (5 + 0.75)) << "the link never waits";
  EXPECT_DOUBLE_EQ(reduction(2, 1), 2 * (0.5 * 5 * (1 + 2 + 1) + 3)) << "it waits for pieces that are under way";
  EXPECT_DOUBLE_EQ(reduction(0, 4), 2 * (5 * 4 + 4)) << "the host is slower";
}

// Two stages x 4 replicas on two nodes of 4.
TEST(LayoutPredictionTest, ThePlacementDecidesWhatCrossesNodes) {
  const Machine machine{.peak_flops = 1,
                        .memory_bytes_per_second = 1,
                        .call_seconds = 0.5,
                        .grouped_call_seconds = 0.25,
                        .intra_node = {.bytes_per_second = 8, .latency_seconds = 0.25},
                        .inter_node = {.bytes_per_second = 2, .latency_seconds = 0.75}};
  const auto costs = MakeRooflineCosts(machine).value();
  const LayoutMachine nodes{.costs = *costs, .devices_per_node = 4};
  const GridShape replicas{2, 4, Placement::kReplicasTogether}, stages{2, 4, Placement::kStagesTogether};
  EXPECT_TRUE(LeavesNode(replicas, 0, 1, nodes));
  EXPECT_FALSE(LeavesNode(stages, 0, 1, nodes));
  // Of 64 bytes each replica has 16 from each other one: all three on its node, or one there and two on the other.
  EXPECT_DOUBLE_EQ(ExchangeSeconds(64, 1, replicas, nodes), 3 * 16 / 8.0 + 0.25);
  EXPECT_DOUBLE_EQ(ExchangeSeconds(64, 1, stages, nodes), 2 * 16 / 2.0 + 0.75);
  // A round: a replica sends to the 3 others and receives from them, in one group.
  EXPECT_DOUBLE_EQ(ExchangeSeconds(64, 100, replicas, nodes), 100 * (0.5 + 6 * 0.25));
}

}  // namespace
}  // namespace hadal
