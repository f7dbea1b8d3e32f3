// ReplicaReduction sums gradients over the replicas of a stage and distributes the result: a reduce-scatter and an
// all-gather with fixed order. All modes share one path.
//
//   b(k) = ((g(replica 8k) + g(replica 8k+1)) + …) + g(replica 8k+7)      a block of 8, the last one shorter
//   g    = (b(0) + b(1)) + …                                            fp32, by the slice's owner, in place
//
// Every replica sends the owner its piece, and the owner adds in this order, independent of the order of arrival.
// With sharding, the owner then updates its slices and sends the new weights to all replicas, as their kernels read
// them (in bf16 the weights of products take half the bytes). Without sharding, it sends the sum to all, and every
// replica updates. In both cases Adam gets the same sums, so sharding changes no bit, and a rank sends and receives
// (R-1)/R of the stage's bytes, twice.
//
// Messages are buckets of slices, in descending order of depth (replica_buckets.h). A step's sum can overlap the last
// backward, as gradients become complete:
//   Begin → (Complete | Progress)* → Finish
// Complete(s) declares that the gradients of sublayers ≥ s are complete, and posts the sends of those buckets. Progress
// adds what has arrived, without waiting.
// On a device whose communicator transfers host memory, a bucket is copied to its mirror there, and the host adds. If
// it transfers device memory, the sums are kernels on a side queue (side_queue.h): a sum starts when its pieces have
// arrived and its own gradient is complete, without waiting for the rest of the backward pass; Finish waits for the
// sums. Both add the same numbers in the same order, so the bits are the CPU's.
// Memory: 2·(R-1) buckets to receive into (received_pieces.h). Mirrors, where used, take 4 bytes per element of the
// stage.
// Threads: one; sums use the stream's. Blocking: Finish and the gathers; each wait takes at most the given timeout.
// Every replica of the stage makes every call at the same place. After an error the job can only end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "layers/purpose.h"
#include "pipeline/exchange/received_pieces.h"
#include "pipeline/exchange/replica_buckets.h"
#include "pipeline/exchange/side_queue.h"
#include "pipeline/plan/pipeline_plan.h"
#include "pipeline/stage/stage_state.h"
#include "runtime/arena.h"
#include "runtime/comm/communicator.h"
#include "runtime/stream.h"
#include "runtime/trace.h"

namespace hadal {

class ReplicaReduction {
 public:
  static constexpr int kBlock = 8;  // replicas

  // For inference, or with one replica, the object takes no memory and does nothing.
  ReplicaReduction(const PipelinePlan& pipeline, const StageState& state, const Stream& stream, Purpose purpose,
                   ArenaLayout& layout);
  // `state`: bound. `replicas`: the stage's (process_grid.h). While `trace` records, it gets one event for each owned
  // bucket summed.
  // Errors: ResourceExhausted.
  absl::Status Bind(const Arena& arena, const StageState& state, Communicator& replicas, TraceBuffer& trace);

  // The most transfers posted at once.  REQUIRES: bound.
  int64_t transfers() const;

  // Starts a step: none of its gradients is complete yet.
  absl::Status Begin();
  // Declares that this rank's gradients of all sublayers ≥ `first` are complete.  REQUIRES: `first` does not rise
  // within a step.
  absl::Status Complete(const Stream& stream, int32_t first);
  // Adds the pieces that have arrived. Does nothing outside a step or before the step's first gradients are complete.
  absl::Status Progress(const Stream& stream);
  // Declares that all gradients are complete, including tied tables. On return the owned slices hold the sums.
  absl::Status Finish(const Stream& stream, absl::Duration timeout);

  // Give every replica the owners' gradients, or the owners' weights as kernels read them.
  absl::Status GatherGradients(const Stream& stream, absl::Duration timeout);
  absl::Status GatherWeights(const Stream& stream, absl::Duration timeout);

 private:
  bool Owns(const ReplicaBucket& bucket) const { return bucket.owner == replica_; }
  const ReplicaBucket& Owned(size_t position) const { return buckets_[mine_[position]]; }
  // Buckets [0, end) are complete on this rank.
  void MarkComplete(size_t end);
  absl::Status PostReceives();
  // Sends the complete buckets to their owners.
  absl::Status PostSends(const Stream& stream);
  // Adds the next owned bucket if all its pieces have arrived; on a device, enqueues the sum. Returns false if not yet.
  absl::StatusOr<bool> AddNext(const Stream& stream);
  // Counts the sums that are done and posts new receives into the buffers they used.
  absl::Status Retire();
  // The piece of owned bucket `position` that `replica` has, which is `own` for this one.
  Vector Piece(size_t position, int replica, Vector own) const {
    return replica == replica_ ? own : received_->Piece(position, replica, own.size);
  }
  void Sum(const Stream& stream, size_t position) const;
  void SumOnDevice(const Stream& main, size_t position) const;
  // Gives every replica the owners' `of`(bucket), an AnyMatrix [1, elements].
  template <typename Of>
  absl::Status Gather(const Stream& stream, const Of& of, absl::Duration timeout);

  int replica_ = 0;
  int replicas_ = 1;
  bool active_ = false;
  bool on_device_ = false;  // whether messages and sums are in device memory
  Communicator* communicator_ = nullptr;
  TraceBuffer* trace_ = nullptr;
  ArenaSlice buffer_slice_, mirror_slice_;
  std::optional<ReceivedPieces> received_;  // where active

  std::vector<ReplicaBucket> buckets_;  // in the order in which they travel
  std::vector<size_t> mine_;            // the buckets this replica owns
  // The step in progress: of buckets_, the first complete_ are complete on this rank, and the first sent_ (≤ complete_)
  // have been sent to their owners.
  size_t complete_ = 0, sent_ = 0;
  // Of mine_, the first marked_ are complete on this rank, posted_ have (or had) receives posted, begun_ are being
  // added or done, and added_ are done:
  //   added_ ≤ begun_ ≤ posted_ ≤ added_ + ReceivedPieces::kBuffers,   begun_ ≤ marked_
  size_t marked_ = 0, posted_ = 0, begun_ = 0, added_ = 0;
  // [mine_] The time when each of the first marked_ became complete on this rank; set while the trace records.
  std::vector<double> complete_seconds_;
  std::vector<CommRequest> requests_;  // the sum's sends; all of a gather
  std::unique_ptr<SideQueue> beside_;  // if the device makes the sums
};

}  // namespace hadal
