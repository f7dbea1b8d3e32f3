// ReplicaReduction sums gradients over the R replicas of a stage and distributes the result: a reduce-scatter and an
// all-gather with fixed order. Terms (replica_buckets.h): a bucket is a range of gradients with one owner among the
// replicas; a round is the buckets that are sent at once; in each block of replicas, an owner's relay is the replica
// that sums the block's gradients for it.
//
//   b(k) = the tree (pipeline/layout/sum_tree.h) over the gradients of block k's replicas
//   g    = the tree over the blocks' sums, so the tree over all replicas        fp32, by the slice's owner, in place
//
// Every replica sends its gradients of a bucket (a piece) to the owner's relay in its block, the relay adds the
// block's pieces in the tree's order, and the owner adds the blocks' sums, whatever the order of arrival. With one
// block the owner is the only relay. With more blocks, each bucket leaves a block once, not once for each replica.
// With sharding, the owner then updates its slices and sends the new weights to all replicas, as their kernels read
// them (in bf16 the weights of products take half the bytes). Without sharding, it sends the sum to all, and every
// replica updates. In both cases Adam gets the same sums, so sharding changes no bit. Results return from the owner to
// its relays, and from each relay to its block. With one block a rank sends and receives (R-1)/R of the stage's bytes
// twice: gradients, then results.
//
// Rounds are in descending order of depth. Exchange n (runtime/comm/communicator.h) has the messages of round n within
// blocks, and those of round n − 2 between blocks, whose sums are complete by then. A step's sum can overlap the last
// backward, as gradients become complete:
//   Begin → (Complete | Progress)* → Finish
// Complete(s) declares that the gradients of sublayers ≥ s are complete, and posts the exchanges of complete rounds for
// which a buffer is free. Progress adds the pieces that have arrived, without waiting, and posts further exchanges into
// the buffers that become free.
// On a device whose communicator transfers host memory, a bucket is copied to a mirror in host memory, and the host
// adds. If it transfers device memory, the sums are kernels on a side queue (side_queue.h): a sum starts when its
// pieces have arrived, without waiting for the rest of the backward pass; Finish waits for the sums. All add the same
// numbers in the same order, so the bits are the CPU's. Afterwards a relay's gradients of the buckets that it relays
// are its block's sums.
// Memory: kBuffers exchanges, each of up to R-1 pieces; a piece has at most MostElementsOfARound fp32 numbers. Mirrors,
// if used, take 4 bytes per element of the stage.
// Threads: one; sums use the stream's. Blocking: Finish and the gathers; each wait takes at most the given timeout.
// All replicas of the stage must make the same calls of Begin, Complete, Finish and the gathers in the same order.
// After an error the job can only end.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/add.h"
#include "layers/parameter_store.h"
#include "pipeline/exchange/replica_buckets.h"
#include "pipeline/layout/pipeline_layout.h"
#include "pipeline/stage/stage_state.h"
#include "runtime/arena.h"
#include "runtime/comm/communicator.h"
#include "runtime/side_queue.h"
#include "runtime/stream.h"
#include "runtime/trace.h"

namespace hadal {

class ReplicaReduction {
 public:
  static constexpr int kBuffers = 2;  // exchanges in progress at once

  // For inference, or with one replica, the object takes no memory and does nothing: it is not active.
  ReplicaReduction(const PipelineLayout& pipeline, const StageState& state, const Stream& stream, Purpose purpose,
                   ArenaLayout& layout);
  // `state`: bound. `replicas`: the stage's (process_grid.h). While `trace` records, it gets one event for each
  // exchange of which this replica adds pieces.
  // Errors: ResourceExhausted.
  absl::Status Bind(const Arena& arena, const StageState& state, Communicator& replicas, TraceBuffer& trace);

  bool active() const { return active_; }
  // Starts a step: none of its gradients is complete yet.
  absl::Status Begin();
  // Declares that this rank's gradients of all sublayers ≥ `first` are complete.  REQUIRES: `first` does not rise
  // within a step.
  absl::Status Complete(const Stream& stream, int32_t first);
  // Adds the pieces that have arrived. Does nothing outside a step or before the step's first gradients are complete.
  absl::Status Progress(const Stream& stream);
  // Declares that all gradients are complete, including tied tables. On return the owned slices hold the sums.
  absl::Status Finish(const Stream& stream, absl::Duration timeout);

  // Computes, or launches on the device's main queue, the new weights of the given slices, which this replica owns.
  using RoundUpdate = std::function<void(std::span<const StateSlice>)>;
  // GatherGradients gives every replica the owners' sums; GatherWeights gives it the owners' weights as kernels read
  // them. `update`, if not empty, is called for each round in turn with the slices that this replica owns, just before
  // the round's messages are posted; on a device these messages wait only for that update. On return all updates are
  // done.
  absl::Status GatherGradients(const Stream& stream, absl::Duration timeout);
  absl::Status GatherWeights(const Stream& stream, absl::Duration timeout, const RoundUpdate& update = {});

 private:
  // The additions of a bucket's received pieces. The last one's sum is in the bucket's own gradient.
  struct Addition {
    const ReplicaBucket* bucket = nullptr;
    std::vector<AddArgs> pieces;
  };
  // An exchange's messages, and the additions to make when they have arrived.
  struct Exchanged {
    std::vector<ExchangePart> parts;
    std::vector<Addition> additions;
  };

  bool Owns(const ReplicaBucket& bucket) const { return bucket.owner == replica_; }
  int RelayOf(const ReplicaBucket& bucket) const { return blocks_.RelayOf(blocks_.BlockOf(replica_), bucket.owner); }
  // Rounds between a bucket's messages within its block and those between blocks; 0: there is one block.
  size_t lag() const { return blocks_.count() > 1 ? kBuffers : 0; }
  // Lists the exchange's messages and additions. `free`: where the next received piece goes.
  void ListExchange(size_t exchange);
  void ListWithinBlock(const ReplicaBucket& bucket, float*& free, Exchanged& exchange) const;
  void ListBetweenBlocks(const ReplicaBucket& bucket, float*& free, Exchanged& exchange) const;
  // Notes that rounds [0, end) are complete on this rank.
  void MarkComplete(size_t end);
  // The event of what was launched before the exchange's round was marked complete; null unless messages are in device
  // memory.
  DeviceQueues::Event Ready(size_t exchange) const { return beside_ == nullptr ? nullptr : beside_->ready(exchange); }
  // Posts the exchanges whose gradients are complete and that have a buffer.
  absl::Status PostExchanges(const Stream& stream);
  // Whether the messages of a posted exchange have ended.
  absl::StatusOr<bool> Arrived(size_t exchange);
  // Adds the next exchange's pieces if they have arrived; on a device, enqueues that. Returns false if not yet.
  absl::StatusOr<bool> AddNext(const Stream& stream);
  // Counts the additions that are done and posts exchanges into the buffers they used.
  absl::Status Retire(const Stream& stream);
  void AddPieces(const Stream& stream, size_t exchange);
  absl::Status Await(std::vector<CommRequest>& requests, absl::Duration timeout, const char* what);
  // The gather's messages of a bucket to or from replicas of other blocks, or of this one.
  void ListResult(const ReplicaBucket& bucket, AnyMatrix values, bool within_block,
                  std::vector<ExchangePart>& parts) const;
  // Gives every replica the owners' `of`(bucket), an AnyMatrix [1, elements].
  template <typename Of>
  absl::Status Gather(const Stream& stream, const Of& of, absl::Duration timeout, const RoundUpdate& update);

  int replica_ = 0;
  bool active_ = false;
  bool on_device_ = false;  // whether messages and sums are in device memory
  Communicator* communicator_ = nullptr;
  TraceBuffer* trace_ = nullptr;
  ArenaSlice buffer_slice_, mirror_slice_;
  ReplicaBlocks blocks_;
  int64_t buffer_elements_ = 0;  // of an exchange
  float* buffers_ = nullptr;     // [kBuffers][buffer_elements_]

  std::vector<ReplicaRound> rounds_;            // in the order in which they travel
  std::vector<std::vector<StateSlice>> owned_;  // [rounds_] this replica's slices, ascending
  std::vector<Exchanged> exchanges_;            // [rounds_ + lag()] of a step
  // The step in progress: of exchanges_, the first complete_ have complete gradients on this rank, posted_ are posted,
  // begun_ are being added or done, and added_ are done:
  //   added_ ≤ begun_ ≤ posted_ ≤ min(complete_, added_ + kBuffers)
  size_t complete_ = 0, posted_ = 0, begun_ = 0, added_ = 0;
  // [exchanges_] The time when each of the first complete_ became complete on this rank; set while the trace records.
  std::vector<double> complete_seconds_;
  std::vector<CommRequest> requests_[kBuffers];  // of posted exchanges
  std::unique_ptr<SideQueue> beside_;            // if the device makes the sums
};

}  // namespace hadal
