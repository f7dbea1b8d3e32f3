#include "pipeline/exchange/transfer_pairs.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/small_model.h"

namespace hadal {
namespace {

using ::testing::UnorderedElementsAre;

std::vector<RankPair> PairsOf(PipelineOptions options, int ranks, EmbeddingSharing sharing) {
  ModelOptions model = testing::SmallModel(ResidualMethod::kPreLn, {.encoder_layers = 4, .decoder_layers = 4});
  model.sharing = sharing;
  const ModelPlan plan = ModelPlan::Make(model);
  const PipelinePlan pipeline = MakePipelinePlan(plan, {.micro_batches = 8}, options, ranks).value();
  return TransferPairs(plan, pipeline);
}

TEST(TransferPairs, NeighboursOfAPipeline) {
  EXPECT_THAT(PairsOf({}, 4, EmbeddingSharing::kNone),
              UnorderedElementsAre(RankPair{0, 1}, RankPair{1, 2}, RankPair{2, 3}));
}

TEST(TransferPairs, InterleavedChunksCloseTheRing) {
  EXPECT_THAT(PairsOf({.chunks = 2, .schedule = ScheduleKind::kInterleaved1F1B}, 4, EmbeddingSharing::kNone),
              UnorderedElementsAre(RankPair{0, 1}, RankPair{1, 2}, RankPair{2, 3}, RankPair{0, 3}));
}

// Source embedding on stage 0, target embedding and head behind it.
TEST(TransferPairs, TheOwnerOfATiedTableKnowsItsUsers) {
  EXPECT_THAT(PairsOf({.split = {4, 12, 16}}, 4, EmbeddingSharing::kAll),
              UnorderedElementsAre(RankPair{0, 1}, RankPair{1, 2}, RankPair{2, 3}, RankPair{0, 3}));
}

TEST(TransferPairs, ReplicasOfAStageAndStagesOfAReplica) {
  EXPECT_THAT(PairsOf({.replicas = 3}, 6, EmbeddingSharing::kNone),
              UnorderedElementsAre(RankPair{0, 3}, RankPair{1, 4}, RankPair{2, 5}, RankPair{0, 1}, RankPair{0, 2},
                                   RankPair{1, 2}, RankPair{3, 4}, RankPair{3, 5}, RankPair{4, 5}));
}

TEST(TransferPairs, OneRankHasNobody) { EXPECT_TRUE(PairsOf({}, 1, EmbeddingSharing::kAll).empty()); }

TEST(TransferPairs, LinksAreTwoAPairOfTheRankThatHasTheMost) {
  const auto links = [](const PipelineOptions& options, int ranks, EmbeddingSharing sharing) {
    return MostLinks(PairsOf(options, ranks, sharing));
  };
  EXPECT_EQ(links({}, 1, EmbeddingSharing::kNone), 0);
  EXPECT_EQ(links({}, 2, EmbeddingSharing::kNone), 2);
  EXPECT_EQ(links({}, 4, EmbeddingSharing::kNone), 4) << "a stage between two";
  EXPECT_EQ(links({.replicas = 3}, 6, EmbeddingSharing::kNone), 6) << "one neighbour, two replicas";
  EXPECT_EQ(MostLinks(std::vector<RankPair>{{0, 0}, {0, 1}}), 2) << "none to oneself";
}

}  // namespace
}  // namespace hadal
