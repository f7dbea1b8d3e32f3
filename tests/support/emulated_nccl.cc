#include "tests/support/emulated_nccl.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "runtime/check.h"

namespace hadal::testing {
namespace {

// Giving memory back takes less, unless something holds it up for ever.
constexpr std::chrono::seconds kLongestAbort{5};
// Before the first device is made, which reads it.
[[maybe_unused]] const int kQueuesAreSet = setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);

}  // namespace

// One side's part of a message.
struct EmulatedNccl::Call {
  std::string Text() const {
    return absl::StrCat(is_send ? "send " : "receive ", bytes, is_send ? " bytes to " : " bytes from ", peer);
  }

  bool is_send = false;
  int peer = 0;
  void* data = nullptr;
  int64_t bytes = 0;
  bool done = false;
  // Of a send whose receive has come, too:
  int delay = -1;  // −1: it has not come
  uint32_t checksum = 0;
};

// Calls that run at once: those of a group, or one.
class EmulatedNccl::Operation final : public PendingWork {
 public:
  Operation(EmulatedNccl& nccl, EmulatedDevice& device) : device(device), nccl_(nccl) {}

  bool Done() override {
    const std::lock_guard lock(nccl_.mutex_);
    nccl_.Advance();
    return over();
  }
  bool over() const {
    return std::all_of(calls.begin(), calls.end(), [](const Call& call) { return call.done; });
  }
  bool MayRun() {
    return std::all_of(behind.begin(), behind.end(), [](const auto& work) { return work->Done(); });
  }
  // The next message to or from `peer`; null if there is none.
  Call* Find(bool is_send, int peer) {
    const auto found = std::find_if(calls.begin(), calls.end(), [&](const Call& call) {
      return !call.done && call.is_send == is_send && call.peer == peer;
    });
    return found == calls.end() ? nullptr : &*found;
  }

  EmulatedDevice& device;
  std::vector<Call> calls;
  PendingList behind;

 private:
  EmulatedNccl& nccl_;
};

struct EmulatedNccl::Side {
  bool joined = false, finalized = false, gone = false;
  int unsettled = 0;  // polls until the last call has settled
  std::vector<std::shared_ptr<Operation>> operations;
  size_t finished = 0;  // operations

  Operation* Next() const { return finished < operations.size() ? operations[finished].get() : nullptr; }
};

struct EmulatedNccl::Group {
  uint64_t id = 0;
  std::vector<Side> sides;
  NcclResult error = kNcclSuccess;

  template <typename Predicate>
  bool All(Predicate&& predicate) const {
    return std::all_of(sides.begin(), sides.end(), predicate);
  }
};

class EmulatedNccl::Library final : public NcclLibrary {
 public:
  Library(EmulatedNccl& nccl, EmulatedDevice& device) : nccl_(nccl), device_(device) {}

  int Version() const override { return 22809; }

  NcclResult GetUniqueId(NcclUniqueId& id) override {
    const std::lock_guard lock(nccl_.mutex_);
    ++nccl_.calls_;
    const uint64_t number = nccl_.next_id_++;
    std::memcpy(id.data(), &number, sizeof(number));
    return kNcclSuccess;
  }

  NcclResult CommInit(NcclComm& comm, const NcclUniqueId& id, NcclGroupRank member, int most_blocks) override {
    HADAL_CHECK(0 <= member.rank && member.rank < member.ranks);
    HADAL_CHECK_GE(most_blocks, 1);
    const std::lock_guard lock(nccl_.mutex_);
    ++nccl_.calls_;
    uint64_t number = 0;
    std::memcpy(&number, id.data(), sizeof(number));
    std::unique_ptr<Group>& group = nccl_.groups_[number];
    if (group == nullptr) group = std::make_unique<Group>(Group{number, std::vector<Side>(member.ranks)});
    HADAL_CHECK_EQ(group->sides.size(), static_cast<size_t>(member.ranks));
    if (std::exchange(group->sides[member.rank].joined, true)) nccl_.Misuse(*group, "one rank joins twice");
    if (member.rank == 0) nccl_.blocks_.push_back(most_blocks);
    const int streams = device_.emulated_queues().TakeStreams(2);
    members_.push_back(std::make_unique<Member>(Member{group.get(), member.rank, streams}));
    comm = members_.back().get();
    return Begun(*members_.back());
  }

  NcclResult AsyncError(NcclComm comm, NcclResult& error) override {
    const std::lock_guard lock(nccl_.mutex_);
    nccl_.Advance();
    const Member& member = Of(comm);
    const Group& group = *member.group;
    error = group.error;
    if (error == kNcclSuccess && member.Unsettled()) error = kNcclInProgress;
    if (member.own().unsettled > 0) --member.own().unsettled;
    return kNcclSuccess;
  }

  NcclResult Send(NcclComm comm, const void* data, int64_t bytes, int peer, DeviceQueues::Queue queue) override {
    return Start(comm, true, const_cast<void*>(data), bytes, peer, queue);
  }
  NcclResult Receive(NcclComm comm, void* data, int64_t bytes, int peer, DeviceQueues::Queue queue) override {
    return Start(comm, false, data, bytes, peer, queue);
  }

  NcclResult GroupStart() override {
    HADAL_CHECK(group_of_calls_ == nullptr);
    group_of_calls_ = std::make_shared<Operation>(nccl_, device_);
    return kNcclSuccess;
  }
  NcclResult GroupEnd() override {
    const std::lock_guard lock(nccl_.mutex_);
    const std::shared_ptr<Operation> operation = std::exchange(group_of_calls_, nullptr);
    HADAL_CHECK(operation != nullptr);
    Member* const member = std::exchange(member_of_group_, nullptr);
    return member == nullptr ? kNcclSuccess : Started(*member, operation);
  }

  NcclResult Finalize(NcclComm comm) override {
    const std::lock_guard lock(nccl_.mutex_);
    Member& member = Called(comm);
    if (member.UnderWay()) nccl_.Misuse(*member.group, "finalized with messages under way");
    member.own().finalized = true;
    return Begun(member);
  }

  NcclResult Destroy(NcclComm comm) override {
    const std::lock_guard lock(nccl_.mutex_);
    Member& member = Called(comm);
    if (!member.own().finalized) nccl_.Misuse(*member.group, "destroyed before it was finalized");
    member.own().gone = true;
    return kNcclSuccess;
  }

  NcclResult Abort(NcclComm comm) override {
    const std::lock_guard lock(nccl_.mutex_);
    ++nccl_.calls_;
    Member& member = Of(comm);
    member.own().gone = true;
    for (const std::shared_ptr<Operation>& operation : member.own().operations) {
      for (Call& call : operation->calls) call.done = true;
    }
    AwaitTheDevice(*member.group);
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
    Group* group = nullptr;
    int rank = 0;
    int streams = 0;  // the first of its two
    Side& own() const { return group->sides[rank]; }
    bool UnderWay() const { return !own().gone && own().Next() != nullptr; }
    // Whether the last call has not settled: it waits for other ranks, or a little.
    bool Unsettled() const {
      if (own().unsettled > 0 || !group->All([](const Side& side) { return side.joined; })) return true;
      return own().finalized && !group->All([](const Side& side) { return side.finalized || side.gone; });
    }
  };
  static Member& Of(NcclComm comm) { return *static_cast<Member*>(comm); }

  // A call on a communicator begins.
  Member& Called(NcclComm comm) {
    ++nccl_.calls_;
    Member& member = Of(comm);
    if (member.Unsettled()) nccl_.Misuse(*member.group, "a call before the previous one has settled");
    return member;
  }
  // … and continues in the background, as often as not until after it returns.
  NcclResult Begun(Member& member) {
    member.own().unsettled = static_cast<int>(nccl_.random_() % 3);
    return kNcclInProgress;
  }

  // As cudaFree does.  REQUIRES: the lock is held once.
  void AwaitTheDevice(Group& group) {
    const auto start = std::chrono::steady_clock::now();
    while (std::any_of(members_.begin(), members_.end(), [](const auto& m) { return m->UnderWay(); })) {
      if (std::chrono::steady_clock::now() - start > kLongestAbort) {
        return nccl_.Misuse(group, "aborted while a kernel of another communicator of this rank waits for its peer");
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
    Member& member = Called(comm);
    Group& group = *member.group;
    HADAL_CHECK(0 <= peer && peer < std::ssize(group.sides) && peer != member.rank);
    HADAL_CHECK(!member.own().gone);
    if (group.error != kNcclSuccess) return group.error;
    const bool grouped = group_of_calls_ != nullptr;
    HADAL_CHECK(member_of_group_ == nullptr || (member_of_group_ == &member && queue_of_group_ == queue));
    const std::shared_ptr<Operation> operation =
        grouped ? group_of_calls_ : std::make_shared<Operation>(nccl_, device_);
    operation->calls.push_back({.is_send = is_send, .peer = peer, .data = data, .bytes = bytes});
    queue_of_group_ = queue;
    if (!grouped) return Started(member, operation);
    member_of_group_ = &member;
    return kNcclSuccess;
  }
  NcclResult Started(Member& member, const std::shared_ptr<Operation>& operation) {
    operation->behind = device_.emulated_queues().Put(queue_of_group_, member.streams, operation);
    nccl_.StartOperation(*member.group, member.rank, operation);
    return Begun(member);
  }

  EmulatedNccl& nccl_;
  EmulatedDevice& device_;
  std::vector<std::unique_ptr<Member>> members_;
  // Between GroupStart and GroupEnd.
  std::shared_ptr<Operation> group_of_calls_;
  Member* member_of_group_ = nullptr;
  DeviceQueues::Queue queue_of_group_ = nullptr;
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

int EmulatedNccl::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

std::vector<int> EmulatedNccl::blocks() const {
  const std::lock_guard lock(mutex_);
  return blocks_;
}

int EmulatedNccl::groups() const {
  const std::lock_guard lock(mutex_);
  return operations_;
}

std::vector<std::string> EmulatedNccl::TakeMisuses() {
  const std::lock_guard lock(mutex_);
  return std::exchange(misuses_, {});
}

void EmulatedNccl::Misuse(Group& group, const std::string& what) {
  std::string text = absl::StrCat("NCCL communicator ", group.id, ": ", what);
  for (size_t rank = 0; rank < group.sides.size(); ++rank) {
    std::vector<std::string> calls;
    for (const std::shared_ptr<Operation>& operation : group.sides[rank].operations) {
      for (const Call& call : operation->calls) calls.push_back(call.Text());
    }
    absl::StrAppend(&text, "\n  rank ", rank, ": ", absl::StrJoin(calls, ", "));
  }
  misuses_.push_back(std::move(text));
  group.error = kNcclInvalidUsage;
}

void EmulatedNccl::StartOperation(Group& group, int rank, std::shared_ptr<Operation> operation) {
  ++operations_;
  Side& side = group.sides[rank];
  side.operations.push_back(std::move(operation));
  const Operation& last = *side.operations.back();
  for (const Call& call : last.calls) CheckLength(group, rank, last, call);
  CheckCircle(group, rank);
}

void EmulatedNccl::CheckLength(Group& group, int rank, const Operation& operation, const Call& call) {
  const auto matches = [](const Call& one, bool is_send, int peer) {
    return one.is_send == is_send && one.peer == peer;
  };
  int64_t nth = 1;  // such message of this rank
  for (const std::shared_ptr<Operation>& before : group.sides[rank].operations) {
    for (const Call& one : before->calls) {
      if (&one == &call) break;
      nth += matches(one, call.is_send, call.peer) ? 1 : 0;
    }
    if (before.get() == &operation) break;
  }
  for (const std::shared_ptr<Operation>& theirs : group.sides[call.peer].operations) {
    for (const Call& one : theirs->calls) {
      if (!matches(one, !call.is_send, rank) || --nth > 0) continue;
      if (one.bytes != call.bytes) Misuse(group, "a message is not as long for its sender as for its receiver");
      return;
    }
  }
}

void EmulatedNccl::CheckCircle(Group& group, int rank) {
  std::vector<int> path;
  if (WaitsForItself(group, rank, path)) Misuse(group, "ranks wait for each other in a circle");
}

// An operation waits for each peer that is at another one, whose message to or from this rank comes later.
bool EmulatedNccl::WaitsForItself(const Group& group, int rank, std::vector<int>& path) {
  if (std::find(path.begin(), path.end(), rank) != path.end()) return true;
  const Operation* const mine = group.sides[rank].Next();
  if (mine == nullptr) return false;
  path.push_back(rank);
  for (const Call& call : mine->calls) {
    Operation* const theirs = group.sides[call.peer].Next();
    if (call.done || theirs == nullptr || theirs->Find(!call.is_send, rank) != nullptr) continue;
    if (WaitsForItself(group, call.peer, path)) return true;
  }
  path.pop_back();
  return false;
}

void EmulatedNccl::Advance() {
  if (advancing_) return;
  advancing_ = true;
  std::vector<Group*> groups;
  for (const auto& [id, group] : groups_) groups.push_back(group.get());
  std::shuffle(groups.begin(), groups.end(), random_);
  for (Group* group : groups) AdvanceGroup(*group);
  advancing_ = false;
}

void EmulatedNccl::AdvanceGroup(Group& group) {
  for (int rank = 0; rank < std::ssize(group.sides); ++rank) {
    Operation* const next = group.sides[rank].Next();
    if (next == nullptr) continue;
    for (Call& call : next->calls) {
      if (call.done || !call.is_send || !AdvanceSend(group, rank, *next, call)) continue;
      CheckCircle(group, rank);
      CheckCircle(group, call.peer);
    }
  }
}

bool EmulatedNccl::AdvanceSend(Group& group, int rank, Operation& operation, Call& send) {
  Side& sender = group.sides[rank];
  Side& receiver = group.sides[send.peer];
  if (group.error != kNcclSuccess || sender.gone || receiver.gone) return false;
  Operation* const theirs = receiver.Next();
  Call* const receive = theirs == nullptr ? nullptr : theirs->Find(/*is_send=*/false, rank);
  if (receive == nullptr || operation.Find(/*is_send=*/true, send.peer) != &send) return false;
  if (!operation.MayRun() || !theirs->MayRun() || (stall_after_ && messages_ >= *stall_after_)) return false;
  if (send.delay < 0) {  // both have just come
    if (fail_after_ && messages_ >= *fail_after_) {
      group.error = failure_;
      return false;
    }
    send.delay = static_cast<int>(random_() % 4);
    theirs->device.Poison(receive->data, receive->bytes);
    send.checksum = operation.device.Checksum(send.data, send.bytes);
  }
  if (send.delay-- > 0) return false;
  HADAL_CHECK_EQ(operation.device.Checksum(send.data, send.bytes), send.checksum);  // a buffer in use was written to
  EmulatedDevice::CopyAcross(theirs->device, receive->data, operation.device, send.data, send.bytes);
  send.done = receive->done = true;
  ++messages_;
  for (const auto& [side, done] : {std::pair(&sender, &operation), std::pair(&receiver, theirs)}) {
    if (!done->over()) continue;
    done->behind.clear();
    ++side->finished;
  }
  return true;
}

}  // namespace hadal::testing
