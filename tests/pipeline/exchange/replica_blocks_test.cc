#include "pipeline/exchange/replica_buckets.h"

#include "gtest/gtest.h"

namespace hadal {
namespace {

TEST(ReplicaBlocks, EachBlockHasARelayOfEachOwner) {
  for (int replicas = 1; replicas <= 40; ++replicas) {
    const ReplicaBlocks blocks{.replicas = replicas};
    for (int owner = 0; owner < replicas; ++owner) {
      EXPECT_EQ(blocks.RelayOf(ReplicaBlocks::BlockOf(owner), owner), owner) << "in its own block itself";
      for (int block = 0; block < blocks.count(); ++block) {
        const int relay = blocks.RelayOf(block, owner);
        EXPECT_EQ(ReplicaBlocks::BlockOf(relay), block);
        EXPECT_LT(relay, replicas);
        EXPECT_TRUE(blocks.Meet(relay, owner));
      }
    }
  }
}

// As many as without blocks, where all blocks are whole; all but one for each other block come from its own.
TEST(ReplicaBlocks, AReplicaReceivesOnePieceOfEachOther) {
  for (const int replicas : {2, 3, 7, 8, 16, 24, 64}) {
    const ReplicaBlocks blocks{.replicas = replicas};
    for (int replica = 0; replica < replicas; ++replica) EXPECT_EQ(blocks.PiecesOf(replica), replicas - 1);
    EXPECT_EQ(blocks.MostPieces(), replicas - 1);
  }
  const ReplicaBlocks ragged{.replicas = 27};  // the last block has 3, one of them the relay of 10
  EXPECT_EQ(ragged.PiecesOf(24), 10 * 2 + 3);
  EXPECT_EQ(ragged.MostPieces(), 4 * 7 + 3);
}

}  // namespace
}  // namespace hadal
