#include "runtime/comm/in_process_communicator.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "runtime/check.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

enum class TransferState { kPosted, kDone, kTooLong };

// A posted send or receive. Its owner fills it in. From Post until Test finds it done, it is guarded by the mailbox of
// `destination`.
struct Transfer {
  TransferState state = TransferState::kPosted;
  bool is_send = false;
  std::byte* data = nullptr;  // a send's bytes are never written
  int64_t bytes = 0;          // a send's length; a receive's capacity, then the length of its message
  int source = 0;
  int destination = 0;
  int tag = 0;
  bool in_use = false;  // used by the owner only

  int owner() const { return is_send ? source : destination; }
};

// Unmatched transfers to one destination, oldest first.
struct Mailbox {
  std::mutex mutex;
  std::vector<Transfer*> sends;
  std::vector<Transfer*> receives;

  std::vector<Transfer*>& waiting(bool is_send) { return is_send ? sends : receives; }
};

// Counts events that a rank may wait for.
class Bell {
 public:
  void Ring() {
    {
      std::lock_guard lock(mutex_);
      ++rings_;
    }
    rung_.notify_one();
  }
  uint64_t rings() {
    std::lock_guard lock(mutex_);
    return rings_;
  }
  // Returns when the count differs from `seen`, or after `at_most`.
  void AwaitRing(uint64_t seen, std::chrono::nanoseconds at_most) {
    std::unique_lock lock(mutex_);
    rung_.wait_for(lock, at_most, [&] { return rings_ != seen; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable rung_;
  uint64_t rings_ = 0;
};

void Deliver(Transfer& send, Transfer& receive) {
  const bool fits = send.bytes <= receive.bytes;
  if (fits && send.bytes > 0) std::memcpy(receive.data, send.data, send.bytes);
  receive.bytes = send.bytes;
  receive.state = fits ? TransferState::kDone : TransferState::kTooLong;
  send.state = TransferState::kDone;
}

}  // namespace

struct InProcessWorld::Shared {
  std::atomic<bool> aborted = false;
  std::mutex abort_mutex;
  int aborting_rank = -1;  // guarded by abort_mutex, as is abort_exit_code
  int abort_exit_code = 0;
};

class InProcessCommunicator final : public Communicator {
 public:
  InProcessCommunicator(InProcessWorld& world, int rank) : world_(world), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return world_.size(); }
  absl::StatusOr<CommRequest> Send(const void* data, int64_t bytes, int peer, int tag) override;
  absl::StatusOr<CommRequest> Receive(void* data, int64_t capacity_bytes, int peer, int tag) override;
  absl::StatusOr<bool> Test(CommRequest& request, int64_t* received_bytes) override;
  void Progress() override {}  // the rank that posts second has already copied
  void Abort(int exit_code) override;

 protected:
  void TakeBack() override;
  void Pause(absl::Duration waited, absl::Duration remaining) override;

 private:
  int64_t Post(const Transfer& transfer);
  absl::Status CheckOpen();
  Mailbox& mailbox_of(int rank) { return world_.ranks_[rank]->mailbox_; }

  InProcessWorld& world_;
  const int rank_;
  // Used by other ranks, under their own locks.
  Mailbox mailbox_;
  Bell bell_;
  // Used by this rank's thread only. A deque, because mailboxes point into it.
  std::deque<Transfer> transfers_;
  std::vector<int64_t> free_ids_;
  uint64_t rings_seen_ = 0;
  bool closed_ = false;
};

absl::StatusOr<CommRequest> InProcessCommunicator::Send(const void* data, int64_t bytes, int peer, int tag) {
  CheckTransfer(bytes, peer, tag);
  HADAL_RETURN_IF_ERROR(CheckOpen());
  std::byte* const read_only = static_cast<std::byte*>(const_cast<void*>(data));
  const int64_t id = Post({.is_send = true,
                           .data = read_only,
                           .bytes = bytes,
                           .source = rank_,
                           .destination = peer,
                           .tag = tag,
                           .in_use = true});
  return CommRequest{.id = id, .is_send = true, .peer = peer, .tag = tag};
}

absl::StatusOr<CommRequest> InProcessCommunicator::Receive(void* data, int64_t capacity_bytes, int peer, int tag) {
  CheckTransfer(capacity_bytes, peer, tag);
  HADAL_RETURN_IF_ERROR(CheckOpen());
  const int64_t id = Post({.data = static_cast<std::byte*>(data),
                           .bytes = capacity_bytes,
                           .source = peer,
                           .destination = rank_,
                           .tag = tag,
                           .in_use = true});
  return CommRequest{.id = id, .is_send = false, .peer = peer, .tag = tag};
}

int64_t InProcessCommunicator::Post(const Transfer& transfer) {
  if (free_ids_.empty()) {
    free_ids_.push_back(static_cast<int64_t>(transfers_.size()));
    transfers_.emplace_back();
  }
  const int64_t id = free_ids_.back();
  free_ids_.pop_back();
  Transfer& posted = transfers_[id];
  posted = transfer;

  Mailbox& mailbox = mailbox_of(posted.destination);
  int woken = -1;
  {
    std::lock_guard lock(mailbox.mutex);
    std::vector<Transfer*>& partners = mailbox.waiting(!posted.is_send);
    const auto partner = std::find_if(partners.begin(), partners.end(), [&](const Transfer* other) {
      return other->source == posted.source && other->tag == posted.tag;
    });
    if (partner == partners.end()) {
      mailbox.waiting(posted.is_send).push_back(&posted);
    } else {
      Transfer& other = **partner;
      partners.erase(partner);
      posted.is_send ? Deliver(posted, other) : Deliver(other, posted);
      woken = other.owner();
    }
  }
  if (woken >= 0) world_.ranks_[woken]->bell_.Ring();
  return id;
}

absl::StatusOr<bool> InProcessCommunicator::Test(CommRequest& request, int64_t* received_bytes) {
  HADAL_CHECK(request.active());
  // Read before the check, so that an event after the check ends the next Pause.
  rings_seen_ = bell_.rings();
  HADAL_RETURN_IF_ERROR(CheckOpen());
  Transfer& transfer = transfers_[request.id];
  HADAL_CHECK(transfer.in_use);

  TransferState state;
  int64_t bytes;
  {
    std::lock_guard lock(mailbox_of(transfer.destination).mutex);
    state = transfer.state;
    bytes = transfer.bytes;
  }
  if (state == TransferState::kPosted) return false;
  if (state == TransferState::kTooLong) {
    TakeBack();
    return InternalError(Describe(request), ": a message of ", bytes,
                         " bytes is longer than the receive; sender and receiver disagree on the shape");
  }
  transfer.in_use = false;
  free_ids_.push_back(request.id);
  request.id = CommRequest::kNone;
  if (!request.is_send && received_bytes != nullptr) *received_bytes = bytes;
  return true;
}

// An aborted rank withdraws before it reports the abort, so that its buffers are not written afterwards.
absl::Status InProcessCommunicator::CheckOpen() {
  if (world_.shared_->aborted.load()) {
    TakeBack();
    std::lock_guard lock(world_.shared_->abort_mutex);
    return UnavailableError("rank ", rank_, ": the job was aborted by rank ", world_.shared_->aborting_rank,
                            " with exit code ", world_.shared_->abort_exit_code);
  }
  if (closed_) return UnavailableError("rank ", rank_, ": communication ended with an earlier error");
  return absl::OkStatus();
}

void InProcessCommunicator::TakeBack() {
  if (closed_) return;
  closed_ = true;
  for (Transfer& transfer : transfers_) {
    if (!transfer.in_use) continue;
    Mailbox& mailbox = mailbox_of(transfer.destination);
    std::lock_guard lock(mailbox.mutex);
    std::erase(mailbox.waiting(transfer.is_send), &transfer);
  }
}

void InProcessCommunicator::Pause(absl::Duration waited, absl::Duration remaining) {
  // Bounded, because adding an infinite duration to a clock's reading overflows.
  bell_.AwaitRing(rings_seen_, absl::ToChronoNanoseconds(std::min(remaining, absl::Hours(1))));
}

void InProcessCommunicator::Abort(int exit_code) {
  TakeBack();
  {
    std::lock_guard lock(world_.shared_->abort_mutex);
    if (world_.shared_->aborted.load()) return;
    world_.shared_->aborting_rank = rank_;
    world_.shared_->abort_exit_code = exit_code;
    world_.shared_->aborted.store(true);
  }
  for (auto& rank : world_.ranks_) rank->bell_.Ring();
}

InProcessWorld::InProcessWorld(int size) : shared_(std::make_unique<Shared>()) {
  HADAL_CHECK_GE(size, 1);
  ranks_.reserve(size);
  for (int rank = 0; rank < size; ++rank) ranks_.push_back(std::make_unique<InProcessCommunicator>(*this, rank));
}

InProcessWorld::~InProcessWorld() = default;

Communicator& InProcessWorld::communicator(int rank) {
  HADAL_CHECK_GE(rank, 0);
  HADAL_CHECK_LT(rank, size());
  return *ranks_[rank];
}

absl::Status InProcessWorld::Run(const std::function<absl::Status(Communicator&)>& body) {
  std::mutex mutex;
  absl::Status first_error;
  std::vector<std::thread> threads;
  threads.reserve(ranks_.size());
  for (auto& rank : ranks_) {
    threads.emplace_back([&mutex, &first_error, &body, &communicator = *rank] {
      const absl::Status status = body(communicator);
      if (status.ok()) return;
      {
        std::lock_guard lock(mutex);
        if (first_error.ok()) first_error = status;
      }
      communicator.Abort(1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return first_error;
}

}  // namespace hadal
