#include "pipeline/replica_reduction.h"

#include <algorithm>
#include <thread>

#include "kernels/add.h"
#include "runtime/comm/message_tags.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

// The sublayer after which a slice's gradient is complete; -1: only when tied tables are summed.
int32_t CompleteAfter(const ModelPlan& plan, int32_t parameter) {
  const ParameterRecord& record = plan.parameters[parameter];
  const bool tied = record.role == ParameterRole::kEmbedding && plan.Uses(parameter).size() > 1;
  return tied ? -1 : record.sublayer;
}

// REQUIRES: both are [1, elements].
bool Follows(AnyMatrix next, AnyMatrix values) {
  return next.storage == values.storage && next.data == static_cast<std::byte*>(values.data) + values.bytes();
}

Matrix RowOf(Vector values) { return {values.data, 1, values.size}; }

}  // namespace

ReplicaReduction::ReplicaReduction(const PipelinePlan& pipeline, const StageState& state, const Stream& stream,
                                   bool training, ArenaLayout& layout)
    : replica_(pipeline.replica), replicas_(pipeline.grid.replicas), active_(training && pipeline.grid.replicas > 1) {
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
  constexpr int64_t kBytes = sizeof(float);
  buffer_elements_ = std::min(elements(state.owned()), kBucketElements);
  const int64_t buffer_bytes = kBuffers * (replicas_ - 1) * buffer_elements_ * kBytes;
  buffer_slice_ =
      on_device_ ? layout.ReserveBytes("workspace", buffer_bytes) : layout.ReserveHostBytes("workspace", buffer_bytes);
  if (stream.kind() == DeviceKind::kCpu || on_device_) return;
  mirror_slice_ = layout.ReserveHostBytes("workspace", elements(state.slices()) * kBytes);
}

absl::Status ReplicaReduction::Bind(const Arena& arena, const StageState& state, Communicator& replicas,
                                    TraceBuffer& trace) {
  if (!active_) return absl::OkStatus();
  communicator_ = &replicas;
  trace_ = &trace;
  buffers_ = arena.Get<float>(buffer_slice_);
  for (const bool rounded : {true, false}) {  // as they lie
    for (const StateSlice& slice : state.slices()) {
      if (slice.is_rounded() == rounded) AddSlice(slice, CompleteAfter(state.plan(), slice.parameter));
    }
  }
  const auto tables =
      std::stable_partition(buckets_.begin(), buckets_.end(), [](const Bucket& b) { return b.first_sublayer >= 0; });
  std::reverse(buckets_.begin(), tables);
  std::stable_sort(buckets_.begin(), tables,
                   [](const Bucket& a, const Bucket& b) { return a.first_sublayer > b.first_sublayer; });
  for (size_t b = 0; b < buckets_.size(); ++b) {
    if (Owns(buckets_[b])) mine_.push_back(b);
  }
  if (state.device() != nullptr && !on_device_) {
    float* mirror = arena.Get<float>(mirror_slice_);
    for (Bucket& bucket : buckets_) mirror = (bucket.mirror = mirror) + bucket.gradient.size;
  }
  complete_seconds_.resize(mine_.size());
  requests_.reserve(buckets_.size() * (replicas_ - 1));
  receives_.resize(kBuffers * (replicas_ - 1));
  if (!on_device_) return absl::OkStatus();
  HADAL_ASSIGN_OR_RETURN(beside_, SideQueue::Create(*state.device(), mine_.size(), kBuffers));
  return absl::OkStatus();
}

int64_t ReplicaReduction::transfers() const {
  const int64_t others = std::ssize(buckets_) - std::ssize(mine_);  // sent to their owner, later received from it
  const int64_t own = std::ssize(mine_) * (replicas_ - 1);          // sent to all, later
  return others + std::max(own, std::ssize(receives_));
}

void ReplicaReduction::AddSlice(const StateSlice& slice, int32_t first_sublayer) {
  const AnyMatrix weight = slice.as_read();
  if (!buckets_.empty()) {
    Bucket& last = buckets_.back();
    if (last.owner == slice.owner && last.first_sublayer >= 0 && first_sublayer >= 0 &&
        last.gradient.size + slice.elements <= kBucketElements && Follows(weight, last.weight) &&
        Follows(RowOf(slice.gradient), RowOf(last.gradient))) {
      last.weight.columns = last.weight.stride += slice.elements;
      last.gradient.size += slice.elements;
      return;
    }
  }
  for (int64_t first = 0; first < slice.elements; first += kBucketElements) {
    const int64_t size = std::min(kBucketElements, slice.elements - first);
    AnyMatrix part = weight.Columns(first, size);
    part.stride = size;
    buckets_.push_back({.gradient = {slice.gradient.data + first, size},
                        .weight = part,
                        .owner = slice.owner,
                        .first_sublayer = first_sublayer});
  }
}

Vector ReplicaReduction::Received(size_t position, int replica) const {
  const int place = replica < replica_ ? replica : replica - 1;
  const auto buffer = static_cast<int64_t>(position % kBuffers) * (replicas_ - 1) + place;
  return {buffers_ + buffer * buffer_elements_, buckets_[mine_[position]].gradient.size};
}

void ReplicaReduction::MarkComplete(size_t end) {
  complete_ = end;
  const double now = trace_->Now();
  const size_t first = marked_;
  for (; marked_ < mine_.size() && mine_[marked_] < complete_; ++marked_) complete_seconds_[marked_] = now;
  if (beside_ != nullptr) beside_->MarkReady(first, marked_);
}

absl::Status ReplicaReduction::PostReceives() {
  for (; posted_ < mine_.size() && posted_ < added_ + kBuffers; ++posted_) {
    size_t request = posted_ % kBuffers * (replicas_ - 1);
    for (int r = 0; r < replicas_; ++r) {
      if (r == replica_) continue;
      const Vector piece = Received(posted_, r);
      // The buffers are the sums' alone: nothing of the backward pass, which is in the main order, holds them up.
      const DeviceQueues::Queue queue = beside_ == nullptr ? DeviceQueues::kMain : beside_->queue();
      HADAL_ASSIGN_OR_RETURN(
          receives_[request++],
          communicator_->ReceiveBehind(queue, piece.data, piece.size * sizeof(float), r, kReplicaPieceTag));
    }
  }
  return absl::OkStatus();
}

void ReplicaReduction::Fetch(const Stream& stream, const Bucket& bucket, Vector values) {
  if (bucket.mirror != nullptr) stream.ToHost(bucket.mirror, values.data, values.size * int64_t{sizeof(float)});
}

void ReplicaReduction::Store(const Stream& stream, const Bucket& bucket, Vector values) {
  if (bucket.mirror != nullptr) stream.FromHost(values.data, bucket.mirror, values.size * int64_t{sizeof(float)});
}

absl::Status ReplicaReduction::PostSends(const Stream& stream, size_t end) {
  for (; sent_ < end; ++sent_) {
    const Bucket& bucket = buckets_[sent_];
    if (Owns(bucket)) continue;
    Fetch(stream, bucket, bucket.gradient);
    const Vector piece = OnHost(bucket, bucket.gradient);
    HADAL_ASSIGN_OR_RETURN(const CommRequest request,
                           communicator_->Send(piece.data, piece.size * sizeof(float), bucket.owner, kReplicaPieceTag));
    requests_.push_back(request);
  }
  return absl::OkStatus();
}

absl::Status ReplicaReduction::Begin() {
  if (!active_) return absl::OkStatus();
  complete_ = sent_ = marked_ = posted_ = begun_ = added_ = 0;
  return PostReceives();
}

absl::Status ReplicaReduction::Advance(const Stream& stream, int32_t first_complete) {
  if (!active_) return absl::OkStatus();
  size_t end = complete_;
  while (end < buckets_.size() && buckets_[end].first_sublayer >= first_complete) ++end;
  MarkComplete(end);
  HADAL_RETURN_IF_ERROR(PostSends(stream, complete_));
  while (true) {
    HADAL_ASSIGN_OR_RETURN(const bool added, AddNext(stream));
    if (!added) return absl::OkStatus();
  }
}

absl::StatusOr<bool> ReplicaReduction::AddNext(const Stream& stream) {
  HADAL_RETURN_IF_ERROR(Retire());
  if (begun_ == posted_ || mine_[begun_] >= complete_) return false;
  const size_t first = begun_ % kBuffers * (replicas_ - 1);
  for (size_t i = first; i < first + replicas_ - 1; ++i) {
    if (!receives_[i].active()) continue;
    HADAL_ASSIGN_OR_RETURN(const bool done, communicator_->Test(receives_[i]));
    if (!done) return false;
  }
  beside_ != nullptr ? SumOnDevice(stream, begun_) : Sum(stream, begun_);
  ++begun_;
  HADAL_RETURN_IF_ERROR(Retire());
  return true;
}

absl::Status ReplicaReduction::Retire() {
  for (; added_ < begun_ && (beside_ == nullptr || beside_->Done(added_)); ++added_) {
    const int64_t piece_bytes = buckets_[mine_[added_]].gradient.size * int64_t{sizeof(float)};
    trace_->Add({.kind = TraceKind::kReplicaGradients,
                 .bytes = (replicas_ - 1) * piece_bytes,
                 .begin_seconds = complete_seconds_[added_],
                 .end_seconds = trace_->Now()});
  }
  return PostReceives();
}

// Elements are independent, so that threads and blocks change no bit; a block of sums stays in the first-level cache.
void ReplicaReduction::Sum(const Stream& stream, size_t position) const {
  constexpr int64_t kGrain = 4096, kBlock = 1024;
  const Bucket& bucket = buckets_[mine_[position]];
  Fetch(stream, bucket, bucket.gradient);
  const Vector own = OnHost(bucket, bucket.gradient);
  const auto piece = [&](int replica) { return replica == replica_ ? own : Received(position, replica); };
  stream.ForRanges(own.size, kGrain, [&](int64_t begin, int64_t end) {
    float sums[kBlock];
    for (int64_t first = begin; first < end; first += kBlock) {
      const int64_t count = std::min(kBlock, end - first);
      const float* values = piece(0).data + first;
      std::copy_n(values, count, sums);
      for (int r = 1; r < replicas_; ++r) {
        values = piece(r).data + first;
        for (int64_t i = 0; i < count; ++i) sums[i] += values[i];
      }
      std::copy_n(sums, count, own.data + first);
    }
  });
  Store(stream, bucket, bucket.gradient);
}

// ((g0 + g1) + …) in place: up to this replica's own piece into replica 0's, which is then added to it, and the rest after that. An
// addition's operands may change places without changing its result.
void ReplicaReduction::SumOnDevice(const Stream& main, size_t position) const {
  const Stream stream = beside_->Begin(main, position);
  const Vector own = buckets_[mine_[position]].gradient;
  for (int r = 1; r < replica_; ++r) Add(stream, {.sum = Received(position, 0), .values = Received(position, r)});
  if (replica_ > 0) Add(stream, {.sum = own, .values = Received(position, 0)});
  for (int r = replica_ + 1; r < replicas_; ++r) Add(stream, {.sum = own, .values = Received(position, r)});
  beside_->End(position);
}

absl::Status ReplicaReduction::Finish(const Stream& stream, absl::Duration timeout) {
  if (!active_) return absl::OkStatus();
  MarkComplete(buckets_.size());
  HADAL_RETURN_IF_ERROR(PostSends(stream, complete_));
  while (added_ < mine_.size()) {
    const size_t first = begun_ % kBuffers * (replicas_ - 1);
    for (size_t i = first; i < first + replicas_ - 1; ++i) {
      if (!receives_[i].active()) continue;
      HADAL_RETURN_IF_ERROR(communicator_->Wait(receives_[i], absl::Now() + timeout, "another replica's gradients"));
    }
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
  for (const Bucket& bucket : buckets_) {
    const AnyMatrix values = of(bucket);
    void* const at = bucket.mirror == nullptr ? values.data : bucket.mirror;
    if (!Owns(bucket)) {
      HADAL_ASSIGN_OR_RETURN(const CommRequest request,
                             communicator_->Receive(at, values.bytes(), bucket.owner, kReplicaResultTag));
      requests_.push_back(request);
      continue;
    }
    if (bucket.mirror != nullptr) stream.ToHost(at, values.data, values.bytes());
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
  for (const Bucket& bucket : buckets_) {
    if (bucket.mirror == nullptr || Owns(bucket)) continue;
    const AnyMatrix values = of(bucket);
    stream.FromHost(values.data, bucket.mirror, values.bytes());
  }
  return absl::OkStatus();
}

absl::Status ReplicaReduction::GatherGradients(const Stream& stream, absl::Duration timeout) {
  return Gather(
      stream, [](const Bucket& bucket) -> AnyMatrix { return RowOf(bucket.gradient); }, timeout);
}

absl::Status ReplicaReduction::GatherWeights(const Stream& stream, absl::Duration timeout) {
  return Gather(
      stream, [](const Bucket& bucket) { return bucket.weight; }, timeout);
}

}  // namespace hadal
