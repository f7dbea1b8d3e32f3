#include "tests/support/emulated_nccl.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "runtime/check.h"

namespace hadal::testing {
namespace {

// Giving memory back takes less, unless something holds it up for ever.
constexpr std::chrono::seconds kLongestAbort{5};

}  // namespace

// One side's part of a message.
class EmulatedNccl::Call final : public PendingWork {
 public:
  Call(EmulatedNccl& nccl, EmulatedDevice& device, bool is_send, void* data, int64_t bytes)
      : device(device), is_send(is_send), data(data), bytes(bytes), nccl_(nccl) {}

  bool Done() override {
    const std::lock_guard lock(nccl_.mutex_);
    nccl_.Advance();
    return done;
  }
  bool MayRun() {
    return std::all_of(behind.begin(), behind.end(), [](const auto& work) { return work->Done(); });
  }
  std::string Text() const { return absl::StrCat(is_send ? "send " : "receive ", bytes, " bytes"); }

  EmulatedDevice& device;
  const bool is_send;
  void* const data;
  const int64_t bytes;
  PendingList behind;
  bool done = false;

 private:
  EmulatedNccl& nccl_;
};

struct EmulatedNccl::Side {
  bool joined = false, finalized = false, gone = false;
  std::vector<std::shared_ptr<Call>> calls;
};

// A communicator of two.
struct EmulatedNccl::Pair {
  uint64_t id = 0;
  Side sides[2];
  size_t finished = 0;  // calls
  int delay = -1;       // of the message under way; −1: none
  uint32_t checksum = 0;
  NcclResult error = kNcclSuccess;
};

class EmulatedNccl::Library final : public NcclLibrary {
 public:
  Library(EmulatedNccl& nccl, EmulatedDevice& device) : nccl_(nccl), device_(device) {}

  int Version() const override { return 22809; }

  NcclResult GetUniqueId(NcclUniqueId& id) override {
    const std::lock_guard lock(nccl_.mutex_);
    const uint64_t number = nccl_.next_id_++;
    std::memcpy(id.data(), &number, sizeof(number));
    return kNcclSuccess;
  }

  NcclResult CommInit(NcclComm& comm, const NcclUniqueId& id, int rank, int most_blocks) override {
    HADAL_CHECK(rank == 0 || rank == 1);
    HADAL_CHECK_GE(most_blocks, 1);
    const std::lock_guard lock(nccl_.mutex_);
    uint64_t number = 0;
    std::memcpy(&number, id.data(), sizeof(number));
    std::unique_ptr<Pair>& pair = nccl_.pairs_[number];
    if (pair == nullptr) pair = std::make_unique<Pair>(Pair{.id = number});
    if (std::exchange(pair->sides[rank].joined, true)) nccl_.Misuse(*pair, "one rank joins twice");
    members_.push_back(std::make_unique<Member>(Member{pair.get(), rank}));
    comm = members_.back().get();
    return kNcclInProgress;
  }

  NcclResult AsyncError(NcclComm comm, NcclResult& error) override {
    const std::lock_guard lock(nccl_.mutex_);
    nccl_.Advance();
    const Member& member = Of(comm);
    const Pair& pair = *member.pair;
    const Side& other = pair.sides[1 - member.side];
    const bool waits = !other.joined || (member.own().finalized && !other.finalized && !other.gone);
    error = pair.error != kNcclSuccess ? pair.error : waits ? kNcclInProgress : kNcclSuccess;
    return kNcclSuccess;
  }

  NcclResult Send(NcclComm comm, const void* data, int64_t bytes, int peer, DeviceQueues::Queue queue) override {
    return Start(comm, true, const_cast<void*>(data), bytes, peer, queue);
  }
  NcclResult Receive(NcclComm comm, void* data, int64_t bytes, int peer, DeviceQueues::Queue queue) override {
    return Start(comm, false, data, bytes, peer, queue);
  }

  NcclResult Finalize(NcclComm comm) override {
    const std::lock_guard lock(nccl_.mutex_);
    Member& member = Of(comm);
    if (member.own().calls.size() != member.pair->finished)
      nccl_.Misuse(*member.pair, "finalized with messages under way");
    member.own().finalized = true;
    return kNcclInProgress;
  }

  NcclResult Destroy(NcclComm comm) override {
    const std::lock_guard lock(nccl_.mutex_);
    Member& member = Of(comm);
    if (!member.own().finalized) nccl_.Misuse(*member.pair, "destroyed before it was finalized");
    member.own().gone = true;
    return kNcclSuccess;
  }

  NcclResult Abort(NcclComm comm) override {
    const std::lock_guard lock(nccl_.mutex_);
    Member& member = Of(comm);
    member.own().gone = true;
    for (const std::shared_ptr<Call>& call : member.own().calls) call->done = true;
    AwaitTheDevice(*member.pair);
    return kNcclSuccess;
  }

  std::string ErrorText(NcclResult result, NcclComm /*comm*/) override {
    switch (result) {
      case kNcclRemoteError:
        return "remote process exited or there was a network error";
      case kNcclUnhandledCudaError:
        return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
      case kNcclInvalidUsage:
        return "invalid usage";
      default:
        return absl::StrCat("result ", result);
    }
  }

 private:
  struct Member {
    Pair* pair = nullptr;
    int side = 0;
    Side& own() const { return pair->sides[side]; }
    bool UnderWay() const { return !own().gone && own().calls.size() > pair->finished; }
  };
  static Member& Of(NcclComm comm) { return *static_cast<Member*>(comm); }

  // As cudaFree does.  REQUIRES: the lock is held once.
  void AwaitTheDevice(Pair& pair) {
    const auto start = std::chrono::steady_clock::now();
    while (std::any_of(members_.begin(), members_.end(), [](const auto& m) { return m->UnderWay(); })) {
      if (std::chrono::steady_clock::now() - start > kLongestAbort) {
        return nccl_.Misuse(pair, "aborted while a kernel of another communicator of this rank waits for its peer");
      }
      nccl_.mutex_.unlock();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      nccl_.mutex_.lock();
      nccl_.Advance();
    }
  }

  NcclResult Start(NcclComm comm, bool is_send, void* data, int64_t bytes, int peer, DeviceQueues::Queue queue) {
    HADAL_CHECK_GE(bytes, 1);
    HADAL_CHECK(device_.Owns(data, bytes));
    const std::lock_guard lock(nccl_.mutex_);
    Member& member = Of(comm);
    Pair& pair = *member.pair;
    HADAL_CHECK_EQ(peer, 1 - member.side);
    HADAL_CHECK(!member.own().gone);
    if (pair.error != kNcclSuccess) return pair.error;
    if (!pair.sides[peer].joined) nccl_.Misuse(pair, "a message before both have joined");
    auto call = std::make_shared<Call>(nccl_, device_, is_send, data, bytes);
    call->behind = device_.emulated_queues().Put(queue, call);
    member.own().calls.push_back(std::move(call));
    nccl_.CheckCalls(pair, member.own().calls.size() - 1);
    return kNcclInProgress;  // as often as not, NCCL's launch is still on its way when the call returns
  }

  EmulatedNccl& nccl_;
  EmulatedDevice& device_;
  std::vector<std::unique_ptr<Member>> members_;
};

EmulatedNccl::EmulatedNccl(uint64_t seed) : random_(seed) {}

EmulatedNccl::~EmulatedNccl() {
  for (const std::string& misuse : misuses_) ADD_FAILURE() << misuse;
}

std::unique_ptr<NcclLibrary> EmulatedNccl::LibraryFor(EmulatedDevice& device) {
  return std::make_unique<Library>(*this, device);
}

void EmulatedNccl::FailAfter(int messages, NcclResult error) {
  const std::lock_guard lock(mutex_);
  fail_after_ = messages;
  failure_ = error;
}

void EmulatedNccl::StallAfter(int messages) {
  const std::lock_guard lock(mutex_);
  stall_after_ = messages;
}

int EmulatedNccl::messages() const {
  const std::lock_guard lock(mutex_);
  return messages_;
}

std::vector<std::string> EmulatedNccl::TakeMisuses() {
  const std::lock_guard lock(mutex_);
  return std::exchange(misuses_, {});
}

void EmulatedNccl::Misuse(Pair& pair, const std::string& what) {
  const auto calls = [](const Side& side) {
    return absl::StrJoin(side.calls, ", ",
                         [](std::string* out, const auto& call) { absl::StrAppend(out, call->Text()); });
  };
  misuses_.push_back(absl::StrCat("NCCL communicator ", pair.id, ": ", what, "\n  rank 0: ", calls(pair.sides[0]),
                                  "\n  rank 1: ", calls(pair.sides[1])));
  pair.error = kNcclInvalidUsage;
}

void EmulatedNccl::CheckCalls(Pair& pair, size_t call) {
  const std::vector<std::shared_ptr<Call>>&a = pair.sides[0].calls, &b = pair.sides[1].calls;
  if (call >= a.size() || call >= b.size()) return;
  if (a[call]->is_send != b[call]->is_send && a[call]->bytes == b[call]->bytes) return;
  Misuse(pair, absl::StrCat("call ", call, " of one side does not match the other's"));
}

void EmulatedNccl::Advance() {
  if (advancing_) return;
  advancing_ = true;
  std::vector<Pair*> pairs;
  for (const auto& [id, pair] : pairs_) pairs.push_back(pair.get());
  std::shuffle(pairs.begin(), pairs.end(), random_);
  for (Pair* pair : pairs) AdvancePair(*pair);
  advancing_ = false;
}

void EmulatedNccl::AdvancePair(Pair& pair) {
  if (pair.error != kNcclSuccess || pair.sides[0].gone || pair.sides[1].gone) return;
  if (pair.finished >= pair.sides[0].calls.size() || pair.finished >= pair.sides[1].calls.size()) return;
  Call* send = pair.sides[0].calls[pair.finished].get();
  Call* receive = pair.sides[1].calls[pair.finished].get();
  if (receive->is_send) std::swap(send, receive);
  if (!send->MayRun() || !receive->MayRun() || (stall_after_ && messages_ >= *stall_after_)) return;
  if (pair.delay < 0) {  // both have just come
    if (fail_after_ && messages_ >= *fail_after_) {
      pair.error = failure_;
      return;
    }
    pair.delay = static_cast<int>(random_() % 4);
    receive->device.Poison(receive->data, receive->bytes);
    pair.checksum = send->device.Checksum(send->data, send->bytes);
  }
  if (pair.delay-- > 0) return;
  HADAL_CHECK_EQ(send->device.Checksum(send->data, send->bytes), pair.checksum);  // a buffer in use was written to
  EmulatedDevice::CopyAcross(receive->device, receive->data, send->device, send->data, send->bytes);
  send->done = receive->done = true;
  send->behind.clear();
  receive->behind.clear();
  ++pair.finished;
  ++messages_;
}

}  // namespace hadal::testing
