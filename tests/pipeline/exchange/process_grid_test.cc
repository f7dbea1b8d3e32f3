#include <map>
#include <set>

#include "gmock/gmock.h"
#include "pipeline/exchange/process_grid.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/status_macros.h"
#include "tests/support/small_model.h"

namespace hadal {
namespace {

constexpr absl::Duration kHang = absl::Seconds(30);
constexpr Placement kPlacements[] = {Placement::kReplicasTogether, Placement::kStagesTogether};

TEST(GridShape, EveryStageOfEveryReplicaIsOneRankAndBack) {
  for (const Placement placement : kPlacements) {
    for (int stages = 1; stages <= 4; ++stages) {
      for (int replicas = 1; replicas <= 4; ++replicas) {
        const GridShape shape{.stages = stages, .replicas = replicas, .placement = placement};
        std::set<int> ranks;
        for (int stage = 0; stage < stages; ++stage) {
          for (int replica = 0; replica < replicas; ++replica) {
            const int rank = shape.RankOf(stage, replica);
            EXPECT_EQ(std::pair(shape.StageOf(rank), shape.ReplicaOf(rank)), std::pair(stage, replica));
            ranks.insert(rank);
          }
        }
        EXPECT_EQ(std::ssize(ranks), stages * replicas);
        EXPECT_EQ(std::pair(*ranks.begin(), *ranks.rbegin()), std::pair(0, shape.ranks() - 1));
      }
    }
  }
}

// What this rank and every rank of `group` tell each other, all with the tag that the other group uses too.
struct Exchange {
  int said = 0;
  std::vector<int> heard;
  std::vector<CommRequest> requests;
};

absl::Status Post(Communicator& group, int said, Exchange& exchange) {
  constexpr int kTag = 7;
  exchange.said = said;
  exchange.heard.assign(group.size(), -1);
  for (int peer = 0; peer < group.size(); ++peer) {
    if (peer == group.rank()) continue;
    HADAL_ASSIGN_OR_RETURN(exchange.requests.emplace_back(),
                           group.Receive(&exchange.heard[peer], sizeof(int), peer, kTag));
    HADAL_ASSIGN_OR_RETURN(exchange.requests.emplace_back(),
                           group.Send(&exchange.said, sizeof(exchange.said), peer, kTag));
  }
  return absl::OkStatus();
}

absl::Status Complete(Communicator& group, Exchange& exchange) {
  for (CommRequest& request : exchange.requests) {
    HADAL_RETURN_IF_ERROR(group.Wait(request, absl::Now() + kHang, "a word"));
  }
  return absl::OkStatus();
}

// Both groups talk at once. A rank tells its pipeline 100 + world rank, and the replicas of its stage 200 + world rank.
absl::Status TalkInBothGroups(Communicator& world, const GridShape& shape) {
  ProcessGrid grid(world, shape);
  EXPECT_EQ(shape.RankOf(grid.stage(), grid.replica()), world.rank());
  EXPECT_EQ(std::pair(grid.pipeline().rank(), grid.pipeline().size()), std::pair(grid.stage(), shape.stages));
  EXPECT_EQ(std::pair(grid.replicas().rank(), grid.replicas().size()), std::pair(grid.replica(), shape.replicas));
  Exchange along, across;
  HADAL_RETURN_IF_ERROR(Post(grid.pipeline(), 100 + world.rank(), along));
  HADAL_RETURN_IF_ERROR(Post(grid.replicas(), 200 + world.rank(), across));
  HADAL_RETURN_IF_ERROR(Complete(grid.replicas(), across));
  HADAL_RETURN_IF_ERROR(Complete(grid.pipeline(), along));
  for (int stage = 0; stage < shape.stages; ++stage) {
    if (stage == grid.stage()) continue;
    EXPECT_EQ(along.heard[stage], 100 + shape.RankOf(stage, grid.replica()));
  }
  for (int replica = 0; replica < shape.replicas; ++replica) {
    if (replica == grid.replica()) continue;
    EXPECT_EQ(across.heard[replica], 200 + shape.RankOf(grid.stage(), replica));
  }
  return absl::OkStatus();
}

TEST(ProcessGrid, APipelineAndTheReplicasOfAStageTalkWithOneTagAndDoNotMeet) {
  for (const Placement placement : kPlacements) {
    for (const auto& [stages, replicas] : {std::pair(1, 1), std::pair(3, 1), std::pair(1, 3), std::pair(3, 2)}) {
      const GridShape shape{.stages = stages, .replicas = replicas, .placement = placement};
      InProcessWorld world(shape.ranks());
      const absl::Status status = world.Run([&](Communicator& rank) { return TalkInBothGroups(rank, shape); });
      EXPECT_TRUE(status.ok()) << status;
    }
  }
}

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

std::vector<TransferGroup> GroupsOf(PipelineOptions options, int ranks, EmbeddingSharing sharing) {
  ModelOptions model = testing::SmallModel(ResidualMethod::kPreLn, {.encoder_layers = 4, .decoder_layers = 4});
  model.sharing = sharing;
  const ModelPlan plan = ModelPlan::Make(model);
  const PipelineLayout pipeline =
      MakePipelineLayout(plan, {.micro_batches = std::max(8, ranks)}, options, ranks).value();
  return TransferGroups(plan, pipeline);
}

// Of one replica: all are in one group.
std::vector<RankPair> PairsOf(PipelineOptions options, int ranks, EmbeddingSharing sharing) {
  const std::vector<TransferGroup> groups = GroupsOf(options, ranks, sharing);
  EXPECT_EQ(groups.size(), 1u);
  return groups[0].pairs;
}

TEST(TransferGroups, NeighboursOfAPipeline) {
  EXPECT_THAT(PairsOf({}, 4, EmbeddingSharing::kNone),
              UnorderedElementsAre(RankPair{0, 1}, RankPair{1, 2}, RankPair{2, 3}));
}

TEST(TransferGroups, InterleavedChunksCloseTheRing) {
  EXPECT_THAT(PairsOf({.chunks = 2, .schedule = ScheduleKind::kInterleaved1F1B}, 4, EmbeddingSharing::kNone),
              UnorderedElementsAre(RankPair{0, 1}, RankPair{1, 2}, RankPair{2, 3}, RankPair{0, 3}));
}

// Source embedding on stage 0, target embedding and head behind it.
TEST(TransferGroups, TheOwnerOfATiedTableKnowsItsUsers) {
  EXPECT_THAT(PairsOf({.split = {4, 12, 16}}, 4, EmbeddingSharing::kAll),
              UnorderedElementsAre(RankPair{0, 1}, RankPair{1, 2}, RankPair{2, 3}, RankPair{0, 3}));
}

TEST(TransferGroups, ReplicasOfAStageAndStagesOfAReplica) {
  for (const Placement placement : {Placement::kReplicasTogether, Placement::kStagesTogether}) {
    const GridShape grid{.stages = 2, .replicas = 3, .placement = placement};
    const auto groups = GroupsOf({.replicas = 3, .placement = placement}, 6, EmbeddingSharing::kNone);
    ASSERT_EQ(groups.size(), 5u);
    for (int replica = 0; replica < 3; ++replica) {
      const int a = grid.RankOf(0, replica), b = grid.RankOf(1, replica);
      EXPECT_THAT(groups[replica].ranks, ElementsAre(a, b));
      EXPECT_THAT(groups[replica].pairs, ElementsAre(RankPair{a, b}));
      EXPECT_EQ(groups[replica].kind, TransferGroup::Kind::kMessages);
    }
    for (int stage = 0; stage < 2; ++stage) {
      const int a = grid.RankOf(stage, 0), b = grid.RankOf(stage, 1), c = grid.RankOf(stage, 2);
      EXPECT_THAT(groups[3 + stage].ranks, ElementsAre(a, b, c));
      EXPECT_THAT(groups[3 + stage].pairs, ElementsAre(RankPair{a, b}, RankPair{a, c}, RankPair{b, c}));
      EXPECT_EQ(groups[3 + stage].kind, TransferGroup::Kind::kExchanges);
    }
  }
}

// A rank meets its block of 8, and one replica of each other block.
TEST(TransferGroups, ReplicasMeetTheirBlockAndARelayOfEachOther) {
  const auto connections = [](int replicas) {
    return MostConnections(GroupsOf({.replicas = replicas}, replicas, EmbeddingSharing::kNone));
  };
  EXPECT_EQ(connections(8), 4 * 7);
  EXPECT_EQ(connections(9), 4 * 8) << "the last is alone in its block, the relay of all others";
  EXPECT_EQ(connections(16), 4 * (7 + 1));
  EXPECT_EQ(connections(32), 4 * (7 + 3));
}

TEST(TransferGroups, OneRankHasNobody) { EXPECT_TRUE(GroupsOf({}, 1, EmbeddingSharing::kAll).empty()); }

TEST(TransferGroups, ConnectionsAreThoseOfTheRankThatHasTheMost) {
  const auto connections = [](const PipelineOptions& options, int ranks) {
    return MostConnections(GroupsOf(options, ranks, EmbeddingSharing::kNone));
  };
  EXPECT_EQ(connections({}, 1), 0);
  EXPECT_EQ(connections({}, 2), 2);
  EXPECT_EQ(connections({}, 4), 4) << "a stage between two";
  EXPECT_EQ(connections({.replicas = 3}, 6), 2 + 2 * 4) << "one neighbour, two replicas with more channels";
}

// The proof that ranks never wait for each other in a circle (runtime/comm/nccl_communicator.md) needs a hardware queue
// of 32 for each stream.
TEST(TransferGroups, NoRankHasMoreThanTwentyOneStreams) {
  constexpr int kOwnStreams = 12;  // a bound on the main order, sums of replicas and copies, of which there are fewer
  ModelOptions model = testing::SmallModel(ResidualMethod::kPreLn, {.encoder_layers = 8, .decoder_layers = 8});
  model.sharing = EmbeddingSharing::kAll;
  const ModelPlan plan = ModelPlan::Make(model);
  for (int stages = 1; stages <= 8; ++stages) {
    for (int replicas = 1; replicas <= 8; ++replicas) {
      for (int chunks = 1; chunks <= (stages > 1 ? 4 : 1); ++chunks) {
        SCOPED_TRACE(::testing::Message() << stages << " stages, " << replicas << " replicas, " << chunks << " chunks");
        PipelineOptions options;
        options.replicas = replicas;
        options.chunks = chunks;
        if (chunks > 1) options.schedule = ScheduleKind::kInterleaved1F1B;
        const auto pipeline =
            MakePipelineLayout(plan, {.micro_batches = stages * replicas}, options, stages * replicas);
        std::map<int, int> streams;
        for (const TransferGroup& group : TransferGroups(plan, *pipeline)) {
          const int links = group.kind == TransferGroup::Kind::kExchanges ? 1 : 2;
          for (const int rank : group.ranks) streams[rank] += links * NcclLink::kStreams;
        }
        for (const auto& [rank, of_links] : streams) EXPECT_LE(of_links + kOwnStreams, 21) << "rank " << rank;
      }
    }
  }
}

}  // namespace

}  // namespace hadal
