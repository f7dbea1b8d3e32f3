// Groups the gradients and weights of one pipeline stage into buckets: the messages between the stage's replicas when
// they sum gradients (replica_reduction.h), as in PyTorch's DDP. Buckets are long, so that a message's latency is
// negligible.
//
// A parameter consists of slices (contiguous parts). Each slice has one owner among the replicas, to which the others
// send their gradients (pipeline/plan/slice_ownership.h). The owner sends back their sum or, with a sharded optimizer,
// the updated weights. Slices that are neighbours in memory and have the same owner are joined, up to 2^18 elements per
// bucket; a longer slice is split.
// Order: by descending depth, the order in which the backward pass completes gradients. Tables that are used in several
// places (tied embeddings) come last, because their gradients are first summed over these places.
// The list is a function of the stage's state alone, so every replica of the stage computes the same one.
#pragma once

#include <cstdint>
#include <vector>

#include "pipeline/plan/slice_ownership.h"
#include "pipeline/stage/stage_state.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

// A consecutive range of memory with one owner.
struct ReplicaBucket {
  // The most elements of a run of slices with one owner (slice_ownership.h).
  static constexpr int64_t kMostElements = kRunElements;

  Vector gradient;
  AnyMatrix weight;            // as kernels read it.  [1, elements]
  float* mirror = nullptr;     // its place in host memory, if messages are there and the state is not; else null
  int owner = 0;               // replica
  int32_t first_sublayer = 0;  // complete once this sublayer's gradients are; -1: once tied tables are summed

  int64_t bytes() const { return gradient.size * int64_t{sizeof(float)}; }  // of the gradient
  // The address that messages use for `values`, the gradient or the weight.
  void* Place(void* values) const { return mirror == nullptr ? values : mirror; }
  // Copy `values` to the mirror and back; without a mirror they do nothing.
  void Fetch(const Stream& stream, const void* values, int64_t bytes) const {
    if (mirror != nullptr) stream.ToHost(mirror, values, bytes);
  }
  void Store(const Stream& stream, void* values, int64_t bytes) const {
    if (mirror != nullptr) stream.FromHost(values, mirror, bytes);
  }
};

// All buckets in the order they are sent, without mirrors.  REQUIRES: `state` is bound, for training.
std::vector<ReplicaBucket> MakeReplicaBuckets(const StageState& state);

}  // namespace hadal
