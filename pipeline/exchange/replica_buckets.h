// Groups the gradients and weights of one pipeline stage into rounds of buckets: the messages between the stage's
// replicas when they sum gradients (replica_reduction.h). Buckets are long, so that a message's latency is negligible,
// and all messages of a round are one exchange (runtime/comm/communicator.h).
//
// A parameter consists of slices (contiguous parts). Each slice has one owner among the replicas, to which the others
// send their gradients, and a round in which they do so (pipeline/layout/slice_ownership.h). The owner sends back their
// sum or, with a sharded optimizer, the updated weights. Slices of one owner and round that are neighbours in memory
// are one bucket. An owner usually has one bucket in a round, more where alignment or learned scalars lie between its
// weights. Rounds are in the order in which the backward pass completes gradients: by descending depth. Tables that are
// used in several places (tied embeddings) come last, because their gradients are first summed over these places. The
// list is a function of the stage's state alone, so every replica of the stage computes the same list.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "pipeline/stage/stage_state.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

// Blocks of up to 8 replicas, in which gradients are summed and results passed on, so that few messages leave a block:
// with replicas of a stage next to each other (Placement::kReplicasTogether), a block is within one node of 8 devices.
// A block is a subtree of the sum's tree (pipeline/layout/sum_tree.h): its size is 8 or, if 8 does not divide R > 8,
// the largest power of two that does (R replicas). R ≤ 8 and odd R give one block.
//
// For each owner, one replica of each block is the owner's relay there: it sums the block's gradients for the owner,
// and passes the owner's result on to the block. In its own block an owner is its own relay.
// Threads: pure.
struct ReplicaBlocks {
  static constexpr int kMostReplicas = 8;  // of a block, if there are several

  int replicas = 1;

  int size() const {  // of each block
    const bool one = replicas <= kMostReplicas || replicas % 2 != 0;
    return one ? replicas : std::min(kMostReplicas, replicas & -replicas);
  }
  int BlockOf(int replica) const { return replica / size(); }
  int count() const { return replicas / size(); }
  int begin(int block) const { return block * size(); }
  int end(int block) const { return (block + 1) * size(); }
  int RelayOf(int block, int owner) const { return begin(block) + owner % size(); }
  // Whether replicas `a` and `b` send each other anything.
  bool Meet(int a, int b) const {
    return BlockOf(a) == BlockOf(b) || RelayOf(BlockOf(b), a) == b || RelayOf(BlockOf(a), b) == a;
  }
};

// A bucket: consecutive slices in memory with one owner.
struct ReplicaBucket {
  Vector gradient;          // [elements]
  AnyMatrix weight;         // [1, elements] in the type that kernels read
  float* mirror = nullptr;  // copy in host memory, if messages use that and the state is on a device; else null
  int owner = 0;            // replica

  int64_t bytes() const { return gradient.size * int64_t{sizeof(float)}; }  // of the gradient
  // The address that messages use for `values`, the address of the gradient or of the weight.
  void* Place(void* values) const { return mirror == nullptr ? values : mirror; }
  // Copy `values` to the mirror and back; without a mirror they do nothing.
  void Fetch(const Stream& stream, const void* values, int64_t bytes) const {
    if (mirror != nullptr) stream.ToHost(mirror, values, bytes);
  }
  void Store(const Stream& stream, void* values, int64_t bytes) const {
    if (mirror != nullptr) stream.FromHost(values, mirror, bytes);
  }
};

// The buckets that replicas exchange at once.
struct ReplicaRound {
  int32_t first_sublayer = 0;  // the round can be sent once this sublayer's gradients are complete; -1: once tied
                               // tables are summed
  std::vector<ReplicaBucket> buckets;  // ascending by address of the gradient
};

// Returns all rounds in order; every `mirror` is null.  REQUIRES: `state` is bound, for training.
std::vector<ReplicaRound> MakeReplicaRounds(const StageState& state);
// Returns the most elements that one owner has in one round of the stage. `state` need not be bound.
int64_t MostElementsOfARound(const StageState& state);

}  // namespace hadal
