#include "pipeline/exchange/replica_reduction.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "pipeline/layout/sum_tree.h"
#include "runtime/check.h"
#include "runtime/comm/message_tags.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

AnyMatrix GradientOf(const ReplicaBucket& bucket) { return Matrix(bucket.gradient.data, 1, bucket.gradient.size); }

// The additions of a tree's leaves of `size` elements, so that their sum is at `own`, one of them. An addition's
// operands may change places without changing its result.
std::vector<AddArgs> InTree(std::vector<float*> leaves, const float* own, int64_t size) {
  std::vector<AddArgs> additions;
  for (const auto& [into, from] : SumSteps(static_cast<int>(leaves.size()))) {
    if (leaves[from] == own) std::swap(leaves[into], leaves[from]);
    additions.push_back({.sum = {leaves[into], size}, .values = {leaves[from], size}});
  }
  return additions;
}

}  // namespace

ReplicaReduction::ReplicaReduction(const PipelineLayout& pipeline, const StageState& state, const Stream& stream,
                                   Purpose purpose, ArenaLayout& layout)
    : replica_(pipeline.replica),
      active_(purpose == Purpose::kTraining && pipeline.grid.replicas > 1),
      blocks_{.replicas = pipeline.grid.replicas} {
  if (!active_) return;
  on_device_ = pipeline.device_transfers;
  buffer_elements_ = (blocks_.replicas - 1) * MostElementsOfARound(state);
  const int64_t bytes = kBuffers * buffer_elements_ * int64_t{sizeof(float)};
  buffer_slice_ = on_device_ ? layout.ReserveBytes("workspace", bytes) : layout.ReserveHostBytes("workspace", bytes);
  if (stream.kind() == DeviceKind::kCpu || on_device_) return;
  int64_t elements = 0;
  for (const StateSlice& slice : state.slices()) elements += slice.elements;
  mirror_slice_ = layout.ReserveHostBytes("workspace", elements * int64_t{sizeof(float)});
}

absl::Status ReplicaReduction::Bind(const Arena& arena, const StageState& state, Communicator& replicas,
                                    TraceBuffer& trace) {
  if (!active_) return absl::OkStatus();
  communicator_ = &replicas;
  trace_ = &trace;
  buffers_ = arena.Get<float>(buffer_slice_);
  rounds_ = MakeReplicaRounds(state);
  owned_.resize(rounds_.size());
  for (const StateSlice& slice : state.owned()) owned_[slice.round].push_back(slice);
  if (state.device() != nullptr && !on_device_) {
    float* mirror = arena.Get<float>(mirror_slice_);
    for (ReplicaRound& round : rounds_) {
      for (ReplicaBucket& bucket : round.buckets) mirror = (bucket.mirror = mirror) + bucket.gradient.size;
    }
  }
  exchanges_.resize(rounds_.size() + lag());
  complete_seconds_.resize(exchanges_.size());
  for (size_t exchange = 0; exchange < exchanges_.size(); ++exchange) ListExchange(exchange);
  if (!on_device_) return absl::OkStatus();
  HADAL_ASSIGN_OR_RETURN(beside_, SideQueue::Create(*state.device(), exchanges_.size(), kBuffers));
  return absl::OkStatus();
}

void ReplicaReduction::ListExchange(size_t exchange) {
  float* const buffer = buffers_ + static_cast<int64_t>(exchange % kBuffers) * buffer_elements_;
  float* free = buffer;
  if (exchange < rounds_.size()) {
    for (const ReplicaBucket& bucket : rounds_[exchange].buckets) ListWithinBlock(bucket, free, exchanges_[exchange]);
  }
  if (lag() > 0 && exchange >= lag()) {
    for (const ReplicaBucket& bucket : rounds_[exchange - lag()].buckets) {
      ListBetweenBlocks(bucket, free, exchanges_[exchange]);
    }
  }
  HADAL_CHECK_LE(free - buffer, buffer_elements_);
}

void ReplicaReduction::ListWithinBlock(const ReplicaBucket& bucket, float*& free, Exchanged& exchange) const {
  auto* const own = static_cast<float*>(bucket.Place(bucket.gradient.data));
  const int relay = RelayOf(bucket);
  if (relay != replica_) {
    exchange.parts.push_back({.peer = relay, .send = own, .send_bytes = bucket.bytes()});
    return;
  }
  std::vector<float*> pieces;
  const int block = blocks_.BlockOf(replica_);
  for (int r = blocks_.begin(block); r < blocks_.end(block); ++r) {
    pieces.push_back(r == replica_ ? own : std::exchange(free, free + bucket.gradient.size));
    if (r == replica_) continue;
    exchange.parts.push_back({.peer = r, .receive = pieces.back(), .receive_bytes = bucket.bytes()});
  }
  exchange.additions.push_back({.bucket = &bucket, .pieces = InTree(std::move(pieces), own, bucket.gradient.size)});
}

void ReplicaReduction::ListBetweenBlocks(const ReplicaBucket& bucket, float*& free, Exchanged& exchange) const {
  auto* const own = static_cast<float*>(bucket.Place(bucket.gradient.data));
  if (RelayOf(bucket) == replica_ && !Owns(bucket)) {
    exchange.parts.push_back({.peer = bucket.owner, .send = own, .send_bytes = bucket.bytes()});
  }
  if (!Owns(bucket)) return;
  std::vector<float*> pieces;
  for (int block = 0; block < blocks_.count(); ++block) {
    const int relay = blocks_.RelayOf(block, replica_);
    pieces.push_back(relay == replica_ ? own : std::exchange(free, free + bucket.gradient.size));
    if (relay == replica_) continue;
    exchange.parts.push_back({.peer = relay, .receive = pieces.back(), .receive_bytes = bucket.bytes()});
  }
  exchange.additions.push_back({.bucket = &bucket, .pieces = InTree(std::move(pieces), own, bucket.gradient.size)});
}

void ReplicaReduction::MarkComplete(size_t end) {
  if (end == rounds_.size()) end = exchanges_.size();
  std::fill(complete_seconds_.begin() + complete_, complete_seconds_.begin() + end, trace_->Now());
  if (beside_ != nullptr) beside_->MarkReady(complete_, end);
  complete_ = end;
}

absl::Status ReplicaReduction::PostExchanges(const Stream& stream) {
  for (; posted_ < std::min(complete_, added_ + kBuffers); ++posted_) {
    if (posted_ < rounds_.size()) {
      for (const ReplicaBucket& bucket : rounds_[posted_].buckets) {
        bucket.Fetch(stream, bucket.gradient.data, bucket.bytes());
      }
    }
    std::vector<CommRequest>& requests = requests_[posted_ % kBuffers];
    requests.clear();
    HADAL_RETURN_IF_ERROR(
        communicator_->Exchange(exchanges_[posted_].parts, kReplicaPieceTag, Ready(posted_), requests));
  }
  return absl::OkStatus();
}

absl::Status ReplicaReduction::Begin() {
  complete_ = posted_ = begun_ = added_ = 0;
  return absl::OkStatus();
}

absl::Status ReplicaReduction::Complete(const Stream& stream, int32_t first) {
  if (!active_) return absl::OkStatus();
  size_t end = complete_;
  while (end < rounds_.size() && rounds_[end].first_sublayer >= first) ++end;
  MarkComplete(end);
  return PostExchanges(stream);
}

absl::Status ReplicaReduction::Progress(const Stream& stream) {
  while (complete_ > 0) {
    HADAL_ASSIGN_OR_RETURN(const bool added, AddNext(stream));
    if (!added) break;
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> ReplicaReduction::Arrived(size_t exchange) {
  for (CommRequest& request : requests_[exchange % kBuffers]) {
    if (!request.active()) continue;
    HADAL_ASSIGN_OR_RETURN(const bool done, communicator_->Test(request));
    if (!done) return false;
  }
  return true;
}

absl::StatusOr<bool> ReplicaReduction::AddNext(const Stream& stream) {
  HADAL_RETURN_IF_ERROR(Retire(stream));
  if (begun_ == posted_) return false;
  HADAL_ASSIGN_OR_RETURN(const bool here, Arrived(begun_));
  if (!here) return false;
  AddPieces(stream, begun_++);
  HADAL_RETURN_IF_ERROR(Retire(stream));
  return true;
}

absl::Status ReplicaReduction::Retire(const Stream& stream) {
  for (; added_ < begun_ && (beside_ == nullptr || beside_->Done(added_)); ++added_) {
    int64_t bytes = 0;
    for (const Addition& addition : exchanges_[added_].additions) {
      bytes += std::ssize(addition.pieces) * addition.bucket->bytes();
    }
    if (bytes == 0) continue;
    trace_->Add({.kind = TraceKind::kReplicaGradients,
                 .bytes = bytes,
                 .begin_seconds = complete_seconds_[added_],
                 .end_seconds = trace_->Now()});
  }
  return PostExchanges(stream);
}

void ReplicaReduction::AddPieces(const Stream& stream, size_t exchange) {
  const Stream adding = beside_ == nullptr ? Stream::Cpu(stream.threads()) : beside_->Begin(stream, exchange);
  for (const Addition& addition : exchanges_[exchange].additions) {
    for (const AddArgs& piece : addition.pieces) Add(adding, piece);
    const ReplicaBucket& bucket = *addition.bucket;
    if (beside_ == nullptr && Owns(bucket)) bucket.Store(stream, bucket.gradient.data, bucket.bytes());
  }
  if (beside_ != nullptr) beside_->End(exchange);
}

absl::Status ReplicaReduction::Await(std::vector<CommRequest>& requests, absl::Duration timeout, const char* what) {
  for (CommRequest& request : requests) {
    if (request.active()) HADAL_RETURN_IF_ERROR(communicator_->Wait(request, absl::Now() + timeout, what));
  }
  return absl::OkStatus();
}

absl::Status ReplicaReduction::Finish(const Stream& stream, absl::Duration timeout) {
  if (!active_) return absl::OkStatus();
  MarkComplete(rounds_.size());
  HADAL_RETURN_IF_ERROR(PostExchanges(stream));
  while (added_ < exchanges_.size()) {
    if (begun_ < posted_) {
      HADAL_RETURN_IF_ERROR(Await(requests_[begun_ % kBuffers], timeout, "the replicas' gradients"));
    }
    HADAL_ASSIGN_OR_RETURN(const bool begun, AddNext(stream));
    if (begun) continue;
    communicator_->Progress();  // the device adds
    std::this_thread::yield();
  }
  return absl::OkStatus();
}

void ReplicaReduction::ListResult(const ReplicaBucket& bucket, AnyMatrix values, bool within_block,
                                  std::vector<ExchangePart>& parts) const {
  void* const at = bucket.Place(values.data);
  const int block = blocks_.BlockOf(replica_), relay = RelayOf(bucket);
  // From the sender of this step to this replica, if that is another one.
  const int sender = within_block ? relay : bucket.owner;
  if (replica_ != sender && (within_block || replica_ == relay)) {
    parts.push_back({.peer = sender, .receive = at, .receive_bytes = values.bytes()});
  }
  if (replica_ != sender) return;
  const int begin = within_block ? blocks_.begin(block) : 0;
  const int end = within_block ? blocks_.end(block) : blocks_.count();
  for (int i = begin; i < end; ++i) {
    const int receiver = within_block ? i : blocks_.RelayOf(i, bucket.owner);
    if (receiver != replica_) parts.push_back({.peer = receiver, .send = at, .send_bytes = values.bytes()});
  }
}

template <typename Of>
absl::Status ReplicaReduction::Gather(const Stream& stream, const Of& of, absl::Duration timeout,
                                      const RoundUpdate& update) {
  if (!active_) return absl::OkStatus();
  constexpr const char* kWhat = "the exchange of the updated weights between the replicas of a stage";
  for (std::vector<CommRequest>& requests : requests_) requests.clear();
  std::vector<ExchangePart> parts;
  for (size_t exchange = 0; exchange < exchanges_.size(); ++exchange) {
    std::vector<CommRequest>& requests = requests_[exchange % kBuffers];
    parts.clear();
    if (update && exchange < rounds_.size()) update(owned_[exchange]);
    if (beside_ != nullptr) beside_->MarkReady(exchange, exchange + 1);
    if (exchange < rounds_.size()) {
      for (const ReplicaBucket& bucket : rounds_[exchange].buckets) {
        const AnyMatrix values = of(bucket);
        if (Owns(bucket)) bucket.Fetch(stream, values.data, values.bytes());
        ListResult(bucket, values, /*within_block=*/lag() == 0, parts);
      }
    }
    if (lag() > 0 && exchange >= lag()) {
      HADAL_RETURN_IF_ERROR(Await(requests, timeout, kWhat));  // the relays have these
      requests.clear();
      for (const ReplicaBucket& bucket : rounds_[exchange - lag()].buckets) {
        ListResult(bucket, of(bucket), /*within_block=*/true, parts);
      }
    }
    HADAL_RETURN_IF_ERROR(communicator_->Exchange(parts, kReplicaResultTag, Ready(exchange), requests));
  }
  for (std::vector<CommRequest>& requests : requests_) HADAL_RETURN_IF_ERROR(Await(requests, timeout, kWhat));
  for (const ReplicaRound& round : rounds_) {
    for (const ReplicaBucket& bucket : round.buckets) {
      const AnyMatrix values = of(bucket);
      if (!Owns(bucket)) bucket.Store(stream, values.data, values.bytes());
    }
  }
  return absl::OkStatus();
}

absl::Status ReplicaReduction::GatherGradients(const Stream& stream, absl::Duration timeout) {
  return Gather(stream, GradientOf, timeout, {});
}

absl::Status ReplicaReduction::GatherWeights(const Stream& stream, absl::Duration timeout, const RoundUpdate& update) {
  return Gather(
      stream, [](const ReplicaBucket& bucket) { return bucket.weight; }, timeout, update);
}

}  // namespace hadal
