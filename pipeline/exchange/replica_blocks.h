// Blocks of 8 replicas, in which gradients are summed and results passed on, so that few messages leave a block: with
// replicas of a stage next to each other (Placement::kReplicasTogether), a block is within one node of 8 devices.
//
// In each block one replica is the relay of an owner: it sums the block's gradients for the owner, and passes the
// owner's result on to the block. In its own block an owner is its own relay. With R ≤ 8 there is one block and no
// other relay.
// Threads: pure.
#pragma once

#include <algorithm>

namespace hadal {

struct ReplicaBlocks {
  static constexpr int kReplicas = 8;  // of a block; the last one may have fewer

  int replicas = 1;

  static int BlockOf(int replica) { return replica / kReplicas; }
  int count() const { return (replicas + kReplicas - 1) / kReplicas; }
  int begin(int block) const { return block * kReplicas; }
  int end(int block) const { return std::min(replicas, (block + 1) * kReplicas); }
  int RelayOf(int block, int owner) const { return begin(block) + owner % kReplicas % (end(block) - begin(block)); }
  // Whether the two send each other anything.
  bool Meet(int a, int b) const {
    return BlockOf(a) == BlockOf(b) || RelayOf(BlockOf(b), a) == b || RelayOf(BlockOf(a), b) == a;
  }
  // The pieces that a replica receives of a round's buckets, one for each owner: as a relay, those of the others in its
  // block; as an owner, the sums of other blocks.
  int PiecesOf(int replica) const {
    const int block = BlockOf(replica);
    int owners = 0;
    for (int owner = 0; owner < replicas; ++owner) owners += RelayOf(block, owner) == replica ? 1 : 0;
    return owners * (end(block) - begin(block) - 1) + count() - 1;
  }
  // The most of any replica.
  int MostPieces() const {
    int most = 0;
    for (int replica = 0; replica < replicas; ++replica) most = std::max(most, PiecesOf(replica));
    return most;
  }
};

}  // namespace hadal
