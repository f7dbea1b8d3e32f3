#include "pipeline/exchange/replica_reduction.h"

#include <algorithm>
#include <span>
#include <thread>
#include <utility>

#include "kernels/add.h"
#include "runtime/comm/message_tags.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

AnyMatrix GradientOf(const ReplicaBucket& bucket) { return Matrix(bucket.gradient.data, 1, bucket.gradient.size); }

// Adds term(begin) … term(end − 1) in this order, each called once. Returns the Vector that holds the sum: the first
// term or, from there on, the one at `own`. An addition's operands may change places without changing its result.
template <typename Term, typename AddTo>
Vector SumInPlace(int begin, int end, const Term& term, const float* own, const AddTo& add) {
  Vector sum = term(begin);
  for (int i = begin + 1; i < end; ++i) {
    Vector next = term(i);
    if (next.data == own) std::swap(sum, next);
    add(sum, next);
  }
  return sum;
}

// Adds the pieces, one of them at `own`, into that one, in the order of the header. Overwrites the others.
template <typename Piece, typename AddTo>
void SumOfReplicas(int replicas, const Piece& piece, const float* own, const AddTo& add) {
  constexpr int kBlock = ReplicaReduction::kBlock;
  const auto block = [&](int b) {
    return SumInPlace(b * kBlock, std::min((b + 1) * kBlock, replicas), piece, own, add);
  };
  SumInPlace(0, (replicas + kBlock - 1) / kBlock, block, own, add);
}

}  // namespace

ReplicaReduction::ReplicaReduction(const PipelinePlan& pipeline, const StageState& state, const Stream& stream,
                                   Purpose purpose, ArenaLayout& layout)
    : replica_(pipeline.replica),
      replicas_(pipeline.grid.replicas),
      active_(purpose == Purpose::kTraining && pipeline.grid.replicas > 1) {
  if (!active_) return;
  on_device_ = pipeline.device_transfers;
  const auto elements = [&state](std::span<const StateSlice> slices) {
    int64_t sum = 0;
    for (const StateSlice& slice : slices) {
      const int64_t of_parameter = state.plan().parameters[slice.parameter].elements();
      sum += std::min(kSliceElements, of_parameter - slice.slice * kSliceElements);
    }
    return sum;
  };
  received_.emplace(replica_, replicas_, std::min(elements(state.owned()), ReplicaBucket::kMostElements));
  buffer_slice_ = on_device_ ? layout.ReserveBytes("workspace", received_->bytes())
                             : layout.ReserveHostBytes("workspace", received_->bytes());
  if (stream.kind() == DeviceKind::kCpu || on_device_) return;
  mirror_slice_ = layout.ReserveHostBytes("workspace", elements(state.slices()) * int64_t{sizeof(float)});
}

absl::Status ReplicaReduction::Bind(const Arena& arena, const StageState& state, Communicator& replicas,
                                    TraceBuffer& trace) {
  if (!active_) return absl::OkStatus();
  communicator_ = &replicas;
  trace_ = &trace;
  received_->Bind(arena.Get<float>(buffer_slice_), replicas);
  buckets_ = MakeReplicaBuckets(state);
  for (size_t b = 0; b < buckets_.size(); ++b) {
    if (Owns(buckets_[b])) mine_.push_back(b);
  }
  if (state.device() != nullptr && !on_device_) {
    float* mirror = arena.Get<float>(mirror_slice_);
    for (ReplicaBucket& bucket : buckets_) mirror = (bucket.mirror = mirror) + bucket.gradient.size;
  }
  complete_seconds_.resize(mine_.size());
  requests_.reserve(buckets_.size() * (replicas_ - 1));
  if (!on_device_) return absl::OkStatus();
  HADAL_ASSIGN_OR_RETURN(beside_, SideQueue::Create(*state.device(), mine_.size(), ReceivedPieces::kBuffers));
  return absl::OkStatus();
}

int64_t ReplicaReduction::transfers() const {
  if (!active_) return 0;
  const int64_t others = std::ssize(buckets_) - std::ssize(mine_);  // sent to their owner, later received from it
  const int64_t own = std::ssize(mine_) * (replicas_ - 1);          // sent to all, later
  return others + std::max(own, received_->transfers());
}

void ReplicaReduction::MarkComplete(size_t end) {
  complete_ = end;
  const double now = trace_->Now();
  const size_t first = marked_;
  for (; marked_ < mine_.size() && mine_[marked_] < complete_; ++marked_) complete_seconds_[marked_] = now;
  if (beside_ != nullptr) beside_->MarkReady(first, marked_);
}

absl::Status ReplicaReduction::PostReceives() {
  // The buffers are the sums' alone: nothing of the backward pass, which is in the main order, holds them up.
  const DeviceQueues::Queue queue = beside_ == nullptr ? DeviceQueues::kMain : beside_->queue();
  for (; posted_ < mine_.size() && posted_ < added_ + ReceivedPieces::kBuffers; ++posted_) {
    HADAL_RETURN_IF_ERROR(received_->Post(posted_, Owned(posted_).gradient.size, queue));
  }
  return absl::OkStatus();
}

absl::Status ReplicaReduction::PostSends(const Stream& stream) {
  for (; sent_ < complete_; ++sent_) {
    const ReplicaBucket& bucket = buckets_[sent_];
    if (Owns(bucket)) continue;
    bucket.Fetch(stream, bucket.gradient.data, bucket.bytes());
    HADAL_ASSIGN_OR_RETURN(
        const CommRequest request,
        communicator_->Send(bucket.Place(bucket.gradient.data), bucket.bytes(), bucket.owner, kReplicaPieceTag));
    requests_.push_back(request);
  }
  return absl::OkStatus();
}

absl::Status ReplicaReduction::Begin() {
  if (!active_) return absl::OkStatus();
  complete_ = sent_ = marked_ = posted_ = begun_ = added_ = 0;
  return PostReceives();
}

absl::Status ReplicaReduction::Complete(const Stream& stream, int32_t first) {
  if (!active_) return absl::OkStatus();
  size_t end = complete_;
  while (end < buckets_.size() && buckets_[end].first_sublayer >= first) ++end;
  MarkComplete(end);
  return PostSends(stream);
}

absl::Status ReplicaReduction::Progress(const Stream& stream) {
  while (complete_ > 0) {
    HADAL_ASSIGN_OR_RETURN(const bool added, AddNext(stream));
    if (!added) break;
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> ReplicaReduction::AddNext(const Stream& stream) {
  HADAL_RETURN_IF_ERROR(Retire());
  if (begun_ == posted_ || mine_[begun_] >= complete_) return false;
  HADAL_ASSIGN_OR_RETURN(const bool here, received_->Test(begun_));
  if (!here) return false;
  beside_ != nullptr ? SumOnDevice(stream, begun_) : Sum(stream, begun_);
  ++begun_;
  HADAL_RETURN_IF_ERROR(Retire());
  return true;
}

absl::Status ReplicaReduction::Retire() {
  for (; added_ < begun_ && (beside_ == nullptr || beside_->Done(added_)); ++added_) {
    trace_->Add({.kind = TraceKind::kReplicaGradients,
                 .bytes = (replicas_ - 1) * Owned(added_).bytes(),
                 .begin_seconds = complete_seconds_[added_],
                 .end_seconds = trace_->Now()});
  }
  return PostReceives();
}

// Elements are independent, so that threads and ranges change no bit; a range stays in the first-level cache.
void ReplicaReduction::Sum(const Stream& stream, size_t position) const {
  constexpr int64_t kGrain = 4096, kRange = 1024;
  const ReplicaBucket& bucket = Owned(position);
  bucket.Fetch(stream, bucket.gradient.data, bucket.bytes());
  const Vector own(static_cast<float*>(bucket.Place(bucket.gradient.data)), bucket.gradient.size);
  const auto add = [](Vector sum, Vector values) {
    for (int64_t i = 0; i < sum.size; ++i) sum[i] += values[i];
  };
  stream.ForRanges(own.size, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t first = begin; first < end; first += kRange) {
      const int64_t count = std::min(kRange, end - first);
      SumOfReplicas(
          replicas_, [&](int r) { return Vector(Piece(position, r, own).data + first, count); }, own.data + first, add);
    }
  });
  bucket.Store(stream, bucket.gradient.data, bucket.bytes());
}

void ReplicaReduction::SumOnDevice(const Stream& main, size_t position) const {
  const Stream stream = beside_->Begin(main, position);
  const Vector own = Owned(position).gradient;
  SumOfReplicas(
      replicas_, [&](int r) { return Piece(position, r, own); }, own.data,
      [&stream](Vector sum, Vector values) { Add(stream, {.sum = sum, .values = values}); });
  beside_->End(position);
}

absl::Status ReplicaReduction::Finish(const Stream& stream, absl::Duration timeout) {
  if (!active_) return absl::OkStatus();
  MarkComplete(buckets_.size());
  HADAL_RETURN_IF_ERROR(PostSends(stream));
  while (added_ < mine_.size()) {
    if (begun_ < posted_) HADAL_RETURN_IF_ERROR(received_->Wait(begun_, timeout));
    HADAL_ASSIGN_OR_RETURN(const bool begun, AddNext(stream));
    if (begun) continue;
    communicator_->Progress();  // the device adds
    std::this_thread::yield();
  }
  for (CommRequest& send : requests_) {
    HADAL_RETURN_IF_ERROR(communicator_->Wait(send, absl::Now() + timeout, "gradients' way to their owner"));
  }
  requests_.clear();
  return absl::OkStatus();
}

template <typename Of>
absl::Status ReplicaReduction::Gather(const Stream& stream, const Of& of, absl::Duration timeout) {
  if (!active_) return absl::OkStatus();
  for (const ReplicaBucket& bucket : buckets_) {
    const AnyMatrix values = of(bucket);
    void* const at = bucket.Place(values.data);
    if (!Owns(bucket)) {
      HADAL_ASSIGN_OR_RETURN(const CommRequest request,
                             communicator_->Receive(at, values.bytes(), bucket.owner, kReplicaResultTag));
      requests_.push_back(request);
      continue;
    }
    bucket.Fetch(stream, values.data, values.bytes());
    for (int r = 0; r < replicas_; ++r) {
      if (r == replica_) continue;
      HADAL_ASSIGN_OR_RETURN(const CommRequest request, communicator_->Send(at, values.bytes(), r, kReplicaResultTag));
      requests_.push_back(request);
    }
  }
  for (CommRequest& request : requests_) {
    HADAL_RETURN_IF_ERROR(communicator_->Wait(request, absl::Now() + timeout, "what the replicas of a stage share"));
  }
  requests_.clear();
  for (const ReplicaBucket& bucket : buckets_) {
    if (Owns(bucket)) continue;
    const AnyMatrix values = of(bucket);
    bucket.Store(stream, values.data, values.bytes());
  }
  return absl::OkStatus();
}

absl::Status ReplicaReduction::GatherGradients(const Stream& stream, absl::Duration timeout) {
  return Gather(stream, GradientOf, timeout);
}

absl::Status ReplicaReduction::GatherWeights(const Stream& stream, absl::Duration timeout) {
  return Gather(
      stream, [](const ReplicaBucket& bucket) { return bucket.weight; }, timeout);
}

}  // namespace hadal
