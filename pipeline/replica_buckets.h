// What the replicas of a stage send each other of its state, and in which order: pieces of one owner, long enough to be
// worth a message.
//
// Slices that lie back to back and have one owner travel together, as buckets of at most 2^18 elements; a longer slice
// is several. Buckets descend in depth, as gradients become complete in the backward pass; tied tables come last, since
// they are summed over their uses first. A function of the state alone: every replica of the stage has the same list.
#pragma once

#include <cstdint>
#include <vector>

#include "pipeline/slice_ownership.h"
#include "pipeline/stage_state.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

// Consecutive in memory, of one owner.
struct ReplicaBucket {
  // Runs of one owner's slices are dealt as long as a message.
  static constexpr int64_t kMostElements = kRunElements;

  Vector gradient;
  AnyMatrix weight;            // as kernels read it.  [1, elements]
  float* mirror = nullptr;     // in the host's memory, where messages lie there and the state does not; else null
  int owner = 0;               // replica
  int32_t first_sublayer = 0;  // complete once this sublayer's gradients are; -1: only when tied tables are summed

  int64_t bytes() const { return gradient.size * int64_t{sizeof(float)}; }  // of the gradient
  // Where messages have what lies at `values`, the gradient or the weight.
  void* Place(void* values) const { return mirror == nullptr ? values : mirror; }
  // Brings it there, and back from there.
  void Fetch(const Stream& stream, const void* values, int64_t bytes) const {
    if (mirror != nullptr) stream.ToHost(mirror, values, bytes);
  }
  void Store(const Stream& stream, void* values, int64_t bytes) const {
    if (mirror != nullptr) stream.FromHost(values, mirror, bytes);
  }
};

// In the order in which they travel, without mirrors.  REQUIRES: `state` is bound, for training.
std::vector<ReplicaBucket> MakeReplicaBuckets(const StageState& state);

}  // namespace hadal
