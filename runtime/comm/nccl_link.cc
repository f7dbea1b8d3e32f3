#include "runtime/comm/nccl_link.h"

#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "runtime/check.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

// A warm link enqueues a message within microseconds; this limit is for failures only.
constexpr absl::Duration kStartTimeout = absl::Seconds(60);
constexpr absl::Duration kPoll = absl::Microseconds(50);
// A sleep takes twice as long as requested; NCCL's own thread, which launches each message, needs less.
constexpr absl::Duration kYieldFor = absl::Microseconds(200);

// Counts the threads that have not ended yet.
class UnderWay {
 public:
  void Begin() {
    const std::lock_guard lock(mutex_);
    ++count_;
  }
  void End() {
    const std::lock_guard lock(mutex_);
    --count_;
    ended_.notify_all();
  }
  void Await(absl::Duration timeout) {
    std::unique_lock lock(mutex_);
    ended_.wait_for(lock, absl::ToChronoMilliseconds(timeout), [this] { return count_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  int count_ = 0;
};

}  // namespace

NcclLink::~NcclLink() {
  NcclLink* const self = this;
  AbortAll({&self, 1});
  if (queue_ != nullptr) device_.queues().DestroyQueue(queue_);
}

NcclLink::NcclLink(NcclLibrary& library, Device& device, std::vector<int> ranks, int self, Direction direction)
    : library_(library), device_(device), ranks_(std::move(ranks)), self_(self), direction_(direction) {}

std::string NcclLink::Name() const {
  constexpr const char* kWhich[] = {"messages to the higher of", "messages to the lower of", "exchanges between"};
  return absl::StrCat("rank ", self_, ", ", kWhich[static_cast<int>(direction_)], " ranks ",
                      absl::StrJoin(ranks_, ", "));
}

int NcclLink::PositionOf(int rank) const {
  const auto found = std::lower_bound(ranks_.begin(), ranks_.end(), rank);
  HADAL_CHECK(found != ranks_.end() && *found == rank);
  return static_cast<int>(found - ranks_.begin());
}

absl::Status NcclLink::Failed(NcclResult result, const char* doing) {
  const bool own = result == kNcclUnhandledCudaError;  // this rank's GPU failed: no lost peer, and no use to try again
  const std::string message =
      absl::StrCat(Name(), ", ", doing, ": NCCL says \"", library_.ErrorText(result, comm_), "\". ",
                   own ? "This rank's GPU or its driver failed" : "See the logs of these ranks",
                   "; NCCL_DEBUG=INFO prints more, pipeline.transport = \"host\" avoids NCCL");
  return own ? InternalError(message) : UnavailableError(message);
}

absl::Status NcclLink::Settle(NcclResult result, const char* doing, const Deadline& deadline,
                              const std::function<absl::Status()>& alive) {
  const Stopwatch watch;
  while (result == kNcclInProgress) {
    NcclResult state = kNcclSuccess;
    if (const NcclResult asked = library_.AsyncError(comm_, state); asked != kNcclSuccess) return Failed(asked, doing);
    if (state != kNcclInProgress) {
      result = state;
      break;
    }
    if (alive) HADAL_RETURN_IF_ERROR(alive());
    if (deadline.Passed()) {
      return DeadlineExceededError(Name(), ": NCCL did not finish ", doing, ". See the logs of these ranks");
    }
    if (absl::Seconds(watch.Seconds()) < kYieldFor) {
      sched_yield();
    } else {
      absl::SleepFor(kPoll);
    }
  }
  return result == kNcclSuccess ? absl::OkStatus() : Failed(result, doing);
}

absl::Status NcclLink::Open(const NcclUniqueId& id, const Deadline& deadline,
                            const std::function<absl::Status()>& alive) {
  HADAL_CHECK(comm_ == nullptr);
  HADAL_ASSIGN_OR_RETURN(queue_, device_.queues().MakeQueue());
  const NcclGroupRank member{.rank = PositionOf(self_), .ranks = static_cast<int>(ranks_.size())};
  const int most_blocks = direction_ == Direction::kBoth && member.ranks > 2 ? kMostExchangeBlocks : kMostBlocks;
  return Settle(library_.CommInit(comm_, id, member, most_blocks), "connecting", deadline, alive);
}

absl::Status NcclLink::MoveFirst(std::span<const Message> messages, const Deadline& deadline,
                                 const std::function<absl::Status()>& alive) {
  DeviceQueues& queues = device_.queues();
  HADAL_ASSIGN_OR_RETURN(const DeviceQueues::Event event, queues.MakeEvent());
  const absl::Cleanup destroy = [&] { queues.DestroyEvent(event); };
  queues.Record(event, DeviceQueues::kMain);
  HADAL_RETURN_IF_ERROR(Enqueue(messages, event, event, deadline, alive));
  while (!queues.Reached(event)) {
    HADAL_RETURN_IF_ERROR(Check());
    HADAL_RETURN_IF_ERROR(alive());
    if (deadline.Passed()) {
      return DeadlineExceededError(Name(), ": the first message ", messages[0].is_send ? "to" : "from", " rank ",
                                   messages[0].peer, " did not end. See that rank's log");
    }
    absl::SleepFor(kPoll);
  }
  return absl::OkStatus();
}

absl::Status NcclLink::Start(std::span<const Message> messages, DeviceQueues::Event after, DeviceQueues::Event done) {
  return Enqueue(messages, after, done, Deadline(kStartTimeout), {});
}

NcclResult NcclLink::Call(const Message& message) {
  HADAL_CHECK_GE(message.bytes, 1);
  if (direction_ != Direction::kBoth) {
    HADAL_CHECK_EQ(message.is_send == (message.peer > self_), direction_ == Direction::kUp);
  }
  const int peer = PositionOf(message.peer);
  return message.is_send ? library_.Send(comm_, message.data, message.bytes, peer, queue_)
                         : library_.Receive(comm_, message.data, message.bytes, peer, queue_);
}

NcclResult NcclLink::CallInGroup(std::span<const Message> messages) {
  HADAL_CHECK(direction_ == Direction::kBoth);
  if (const NcclResult begun = library_.GroupStart(); begun != kNcclSuccess) return begun;
  NcclResult failed = kNcclSuccess;
  for (const Message& message : messages) {
    const NcclResult result = Call(message);
    if (result != kNcclSuccess && result != kNcclInProgress && failed == kNcclSuccess) failed = result;
  }
  const NcclResult ended = library_.GroupEnd();
  return failed != kNcclSuccess ? failed : ended;
}

absl::Status NcclLink::Enqueue(std::span<const Message> messages, DeviceQueues::Event after, DeviceQueues::Event done,
                               const Deadline& deadline, const std::function<absl::Status()>& alive) {
  HADAL_CHECK(comm_ != nullptr);
  HADAL_CHECK(!messages.empty());
  device_.queues().Await(queue_, after);
  const NcclResult result = messages.size() == 1 ? Call(messages[0]) : CallInGroup(messages);
  HADAL_RETURN_IF_ERROR(Settle(result, "starting a message", deadline, alive));
  device_.queues().Record(done, queue_);
  return absl::OkStatus();
}

absl::Status NcclLink::Check() {
  NcclResult state = kNcclSuccess;
  if (const NcclResult asked = library_.AsyncError(comm_, state); asked != kNcclSuccess)
    return Failed(asked, "its state");
  return state == kNcclSuccess || state == kNcclInProgress ? absl::OkStatus() : Failed(state, "a message under way");
}

absl::Status NcclLink::BeginClose() {
  const NcclResult result = library_.Finalize(comm_);
  return result == kNcclSuccess || result == kNcclInProgress ? absl::OkStatus() : Failed(result, "ending");
}

absl::Status NcclLink::FinishClose(const Deadline& deadline) {
  HADAL_RETURN_IF_ERROR(Settle(kNcclInProgress, "ending", deadline));
  const NcclResult result = library_.Destroy(comm_);
  comm_ = nullptr;
  const bool ended = result == kNcclSuccess || result == kNcclInProgress;  // of a communicator that does not block
  return ended ? absl::OkStatus() : Failed(result, "ending");
}

void NcclLink::AbortAll(std::span<NcclLink* const> links) {
  const auto under_way = std::make_shared<UnderWay>();
  for (NcclLink* const link : links) {
    if (link->comm_ == nullptr) continue;
    under_way->Begin();
    try {
      std::thread([under_way, comm = link->comm_, &library = link->library_] {
        library.Abort(comm);  // the result does not matter any more
        under_way->End();
      }).detach();
      link->comm_ = nullptr;
    } catch (const std::system_error&) {  // the process cannot start another thread
      under_way->End();
    }
  }
  // Links without a thread, after the others have been started: the kernels of those may be what these wait for.
  for (NcclLink* const link : links) {
    if (NcclComm const comm = std::exchange(link->comm_, nullptr); comm != nullptr) link->library_.Abort(comm);
  }
  under_way->Await(kAbortTimeout);
}

}  // namespace hadal
