// Gradients summed over the replicas of a stage, and what follows from them spread again: one path for all modes.
//
//   g = ((g(replica 0) + g(replica 1)) + g(replica 2)) + …      fp32, in replica order, by the slice's owner, in place
//
// Every replica sends the owner its piece; the owner adds in replica order, whatever came first. Then, sharded, the
// owner updates and sends the new weights to all, as their kernels read them: in bf16 those of products as half the
// bytes; not sharded, it sends the sum to all and everybody updates. Both ways the same sums reach the same Adam, so
// that sharding changes no bit. Either way a rank sends and receives (R-1)/R of the stage's bytes, twice.
//
// What travels are buckets of slices, in descending order of depth (replica_buckets.h). The sum of a step is a small
// machine, so that it can run beside the last backward, as gradients become complete:
//   Begin → (Complete | Progress)* → Finish
// Complete(s) says that the gradients of sublayers ≥ s are complete, and posts those buckets' sends; Progress adds what
// has come, without waiting.
// On a device whose communicator moves the host's memory a bucket travels through its mirror there, where sums are made
// too; where it moves the device's, sums are kernels of the device, beside its main order (side_queue.h): a sum starts
// when its pieces have come and its own gradient is complete, and does not wait for the rest of the backward pass;
// Finish waits for the sums. Both add the same numbers in the same order: the bits are the CPU's.
// Memory: 2·(R-1) buckets to receive into (received_pieces.h); mirrors, where there are any, are as large as the
// stage's weights.
// Threads: one; sums use the stream's. Blocking: Finish and the gathers; every wait has the timeout given. Every
// replica of the stage calls each verb at the same place. After an error the job can only end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "layers/purpose.h"
#include "pipeline/pipeline_plan.h"
#include "pipeline/received_pieces.h"
#include "pipeline/replica_buckets.h"
#include "pipeline/side_queue.h"
#include "pipeline/stage_state.h"
#include "runtime/arena.h"
#include "runtime/comm/communicator.h"
#include "runtime/stream.h"
#include "runtime/trace.h"

namespace hadal {

class ReplicaReduction {
 public:
  // For inference, or with one replica, there is nothing to reduce, and no memory is taken.
  ReplicaReduction(const PipelinePlan& pipeline, const StageState& state, const Stream& stream, Purpose purpose,
                   ArenaLayout& layout);
  // `state`: bound. `replicas`: the stage's (process_grid.h). `trace` gets an event a message received, while it
  // records.
  // Errors: ResourceExhausted.
  absl::Status Bind(const Arena& arena, const StageState& state, Communicator& replicas, TraceBuffer& trace);

  // Transfers at once, at most.  REQUIRES: bound.
  int64_t transfers() const;

  // A step starts: gradients of this step are not complete yet.
  absl::Status Begin();
  // The gradients of all sublayers ≥ `first` are complete on this rank.  REQUIRES: `first` does not rise within a step.
  absl::Status Complete(const Stream& stream, int32_t first);
  // Adds what has come. Does nothing outside a step, and before its first gradients are complete.
  absl::Status Progress(const Stream& stream);
  // All gradients are complete, tied tables included. Afterwards owned slices hold the sums.
  absl::Status Finish(const Stream& stream, absl::Duration timeout);

  // Every replica gets the owners' gradients / weights, as kernels read them.
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
  // Sums the next owned bucket if all its pieces have arrived; on a device it enqueues the sum. False: not yet.
  absl::StatusOr<bool> AddNext(const Stream& stream);
  // Notes the sums that are done, whose pieces' buffers then receive others.
  absl::Status Retire();
  void Sum(const Stream& stream, size_t position) const;
  void SumOnDevice(const Stream& main, size_t position) const;
  // Every replica gets the owners' `of`(bucket): an AnyMatrix [1, elements].
  template <typename Of>
  absl::Status Gather(const Stream& stream, const Of& of, absl::Duration timeout);

  int replica_ = 0;
  int replicas_ = 1;
  bool active_ = false;
  bool on_device_ = false;  // messages and sums
  Communicator* communicator_ = nullptr;
  TraceBuffer* trace_ = nullptr;
  ArenaSlice buffer_slice_, mirror_slice_;
  std::optional<ReceivedPieces> received_;  // where active

  std::vector<ReplicaBucket> buckets_;  // in the order in which they travel
  std::vector<size_t> mine_;            // the buckets this replica owns
  // The step in progress. Of buckets_ the first complete_ are complete here, and the first sent_ (≤ complete_) have
  // left for their owners.
  size_t complete_ = 0, sent_ = 0;
  // Of mine_ the first marked_ are complete here, posted_ have or had buffers to receive into, begun_ are being added,
  // added_ are added:
  //   added_ ≤ begun_ ≤ posted_ ≤ added_ + ReceivedPieces::kBuffers,   begun_ ≤ marked_
  size_t marked_ = 0, posted_ = 0, begun_ = 0, added_ = 0;
  // [mine_] when each became complete here; of marked_ ones, while the trace records.
  std::vector<double> complete_seconds_;
  std::vector<CommRequest> requests_;  // the sum's sends; all of a gather
  std::unique_ptr<SideQueue> beside_;  // where sums are the device's
};

}  // namespace hadal
