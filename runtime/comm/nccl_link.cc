#include "runtime/comm/nccl_link.h"

#include <sched.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/check.h"
#include "runtime/clock.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

// Thread blocks of a transfer: as many as NCCL's own point-to-point transfers use between two GPUs of a host. With the
// largest number of concurrent transfers (nccl_communicator.h) all blocks fit on a GPU: 2·8·4 of 108 multiprocessors.
constexpr int kMostBlocks = 4;
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

absl::Status NcclLink::Failed(NcclResult result, const char* doing) {
  const bool own = result == kNcclUnhandledCudaError;  // this rank's GPU failed: no lost peer, and no use to try again
  const std::string message = absl::StrCat("rank ", self_, sends_ ? ", transfers to rank " : ", transfers from rank ",
                                           peer_, ", ", doing, ": NCCL says \"", library_.ErrorText(result, comm_),
                                           "\". ", own ? "This rank's GPU or its driver failed" : "See that rank's log",
                                           "; NCCL_DEBUG=INFO prints more, pipeline.transport = \"host\" avoids NCCL");
  return own ? absl::InternalError(message) : absl::UnavailableError(message);
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
      return absl::DeadlineExceededError(absl::StrCat("rank ", self_,
                                                      sends_ ? ", transfers to rank " : ", transfers from rank ", peer_,
                                                      ": NCCL did not finish ", doing, ". See that rank's log"));
    }
    if (absl::Seconds(watch.Seconds()) < kYieldFor) {
      sched_yield();
    } else {
      absl::SleepFor(kPoll);
    }
  }
  return result == kNcclSuccess ? absl::OkStatus() : Failed(result, doing);
}

absl::Status NcclLink::Open(const NcclUniqueId& id, std::byte* scratch, int64_t bytes, const Deadline& deadline,
                            const std::function<absl::Status()>& alive) {
  HADAL_CHECK(comm_ == nullptr);
  HADAL_ASSIGN_OR_RETURN(queue_, device_.queues().MakeQueue());
  const NcclResult result = library_.CommInit(comm_, id, sends_ ? 0 : 1, kMostBlocks);
  HADAL_RETURN_IF_ERROR(Settle(result, "connecting", deadline, alive));
  return WarmUp(scratch, bytes, deadline, alive);
}

absl::Status NcclLink::WarmUp(std::byte* scratch, int64_t bytes, const Deadline& deadline,
                              const std::function<absl::Status()>& alive) {
  DeviceQueues& queues = device_.queues();
  HADAL_ASSIGN_OR_RETURN(const DeviceQueues::Event event, queues.MakeEvent());
  const absl::Cleanup destroy = [&] { queues.DestroyEvent(event); };
  queues.Record(event, DeviceQueues::kMain);
  HADAL_RETURN_IF_ERROR(Start(scratch, bytes, event, event));
  while (!queues.Reached(event)) {
    HADAL_RETURN_IF_ERROR(Check());
    HADAL_RETURN_IF_ERROR(alive());
    if (deadline.Passed()) {
      return absl::DeadlineExceededError(absl::StrCat("rank ", self_,
                                                      sends_ ? ", transfers to rank " : ", transfers from rank ", peer_,
                                                      ": the first message did not arrive. See that rank's log"));
    }
    absl::SleepFor(kPoll);
  }
  return absl::OkStatus();
}

absl::Status NcclLink::Start(void* data, int64_t bytes, DeviceQueues::Event after, DeviceQueues::Event done) {
  HADAL_CHECK(comm_ != nullptr);
  HADAL_CHECK_GE(bytes, 1);
  device_.queues().Await(queue_, after);
  const NcclResult result = sends_ ? library_.Send(comm_, data, bytes, /*peer=*/1, queue_)
                                   : library_.Receive(comm_, data, bytes, /*peer=*/0, queue_);
  HADAL_RETURN_IF_ERROR(Settle(result, "starting a message", Deadline(kStartTimeout)));
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
  return result == kNcclSuccess ? absl::OkStatus() : Failed(result, "ending");
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
