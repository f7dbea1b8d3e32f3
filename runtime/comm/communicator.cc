#include "runtime/comm/communicator.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "runtime/check.h"
#include "runtime/clock.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

// A neighbour's answer arrives within microseconds, within the time of a message, or only after a whole stage's work.
// Yield for the first two, sleep for the third. Measured on a virtual machine: a sleeping rank uses 9% of a core and
// wakes 0.1 ms after its message has arrived (with sleeps of at most 500 us: 4%, 0.3 ms).
constexpr absl::Duration kYieldFor = absl::Microseconds(200);
constexpr absl::Duration kShortestSleep = absl::Microseconds(20);
constexpr absl::Duration kLongestSleep = absl::Microseconds(100);
// CurrentWait does not show shorter waits.
constexpr absl::Duration kNoteworthy = absl::Milliseconds(10);

absl::Status WithPurpose(const absl::Status& status, std::string_view what) {
  return absl::Status(status.code(), absl::StrCat(status.message(), " (while waiting for ",
                                                  absl::string_view(what.data(), what.size()), ")"));
}

}  // namespace

absl::Status Communicator::Wait(CommRequest& request, absl::Time deadline, std::string_view what,
                                int64_t* received_bytes, const std::function<absl::Status()>* meanwhile) {
  // Converted to a duration once, so that setting the clock during the wait does not change it.
  const absl::Duration allowed = deadline - absl::Now();
  const auto start = std::chrono::steady_clock::now();
  bool noted = false;
  const absl::Cleanup forget = [&] {
    if (noted) SetCurrentWait(std::nullopt);
  };
  while (true) {
    const absl::StatusOr<bool> done = Test(request, received_bytes);
    if (!done.ok()) {
      Withdraw();
      return WithPurpose(done.status(), what);
    }
    if (*done) return absl::OkStatus();
    absl::Status moved = passenger_ != nullptr ? passenger_->MoveAlong() : absl::OkStatus();
    if (moved.ok() && meanwhile != nullptr) moved = (*meanwhile)();
    if (!moved.ok()) {
      Withdraw();
      return WithPurpose(moved, what);
    }

    const absl::Duration waited = absl::FromChrono(std::chrono::steady_clock::now() - start);
    if (waited >= allowed) {
      Withdraw();
      return DeadlineExceededError(
          Describe(request), ": gave up after ", absl::FormatDuration(waited), " waiting for ",
          absl::string_view(what.data(), what.size()), ". ",
          request.peer == CommRequest::kAllPeers ? "One of them" : absl::StrCat("Rank ", request.peer),
          " is slow, stopped or itself waiting; see its log");
    }
    if (!noted && waited >= kNoteworthy) {
      SetCurrentWait(
          WaitInProgress{absl::StrCat(Describe(request), ", for ", absl::string_view(what.data(), what.size())),
                         MonotonicSeconds() - absl::ToDoubleSeconds(waited)});
      noted = true;
    }
    // A transport that blocks here must return in time to set the current wait, and for what else moves along.
    const absl::Duration remaining = (noted ? allowed : std::min(allowed, kNoteworthy)) - waited;
    const bool alone = passenger_ == nullptr && meanwhile == nullptr;
    Pause(waited, alone ? remaining : std::min(remaining, kLongestSleep));
  }
}

absl::Status Communicator::Exchange(std::span<const ExchangePart> parts, int tag, DeviceQueues::Event /*after*/,
                                    std::vector<CommRequest>& requests) {
  for (const ExchangePart& part : parts) {
    if (part.receive_bytes > 0) {
      HADAL_ASSIGN_OR_RETURN(requests.emplace_back(), Receive(part.receive, part.receive_bytes, part.peer, tag));
    }
    if (part.send_bytes > 0) {
      HADAL_ASSIGN_OR_RETURN(requests.emplace_back(), Send(part.send, part.send_bytes, part.peer, tag));
    }
  }
  return absl::OkStatus();
}

void Communicator::Withdraw() {
  TakeBack();
  if (passenger_ != nullptr) passenger_->Withdraw();
}

void Communicator::Carry(Communicator* passenger) {
  const std::lock_guard lock(wait_mutex_);
  passenger_ = passenger;
}

std::optional<WaitInProgress> Communicator::CurrentWait() const {
  const std::lock_guard lock(wait_mutex_);
  return current_wait_.has_value() || passenger_ == nullptr ? current_wait_ : passenger_->CurrentWait();
}

void Communicator::SetCurrentWait(std::optional<WaitInProgress> wait) {
  const std::lock_guard lock(wait_mutex_);
  current_wait_ = std::move(wait);
}

void Communicator::Pause(absl::Duration waited, absl::Duration remaining) {
  if (waited < kYieldFor) {
    sched_yield();
    return;
  }
  const absl::Duration sleep = std::clamp(waited / 32, kShortestSleep, kLongestSleep);
  std::this_thread::sleep_for(absl::ToChronoMicroseconds(std::min(sleep, remaining)));
}

void Communicator::CheckTransfer(int64_t bytes, int peer, int tag) const {
  HADAL_CHECK_GE(bytes, 0);
  HADAL_CHECK_GE(peer, 0);
  HADAL_CHECK_LT(peer, size());
  HADAL_CHECK_GE(tag, 0);
  HADAL_CHECK_LT(tag, kTagLimit);
}

std::string Communicator::Describe(const CommRequest& request) const {
  if (request.peer == CommRequest::kAllPeers) {
    return absl::StrCat("rank ", rank(), ", exchange with other ranks, tag ", request.tag);
  }
  return absl::StrCat("rank ", rank(), ", ", request.is_send ? "send to rank " : "receive from rank ", request.peer,
                      ", tag ", request.tag);
}

}  // namespace hadal
