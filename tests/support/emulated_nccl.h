// An emulation of NCCL for tests: the function table of nccl_library.h between threads of one process, each with an
// emulated device. It is stricter than NCCL, so that a program that passes here does not depend on NCCL's buffering.
//
//   · rendezvous: nothing is transferred before both sides have started a message and all earlier work in their queues
//     is done. Messages of a rank on one communicator run in the order of its calls, those of a group (GroupStart …
//     GroupEnd) at once;
//   · a call returns at once with kNcclInProgress, and only some polls of AsyncError later it has settled. Another call
//     on that communicator before that, other than Abort, is a misuse, as NCCL refuses it;
//   · messages end later, those of different communicators in random order;
//   · the n-th message that a rank sends to another must be as long as the n-th that this one receives from it, and
//     ranks must not wait for each other in a circle. Otherwise that is a misuse: all calls are recorded, the
//     communicator fails, and so does the test unless it takes the misuse;
//   · bytes must be on the rank's device; a receive's bytes are NaN from its start to its end, a send's must not change
//     during it;
//   · an abort frees memory and so waits for the rank's other messages in flight; if one of them never ends, because
//     its communicator is not aborted at the same time, that is a misuse;
//   · joining needs all sides, as everything else; destroying or finalizing a communicator with messages in flight is
//     a misuse;
//   · each communicator takes two of the device's streams, one of which waits for its messages (emulated_queues.h).
// A program that uses it has 32 hardware queues unless CUDA_DEVICE_MAX_CONNECTIONS is set, as a run over NCCL has.
// Threads: any; each library object belongs to one.
#pragma once

#include <mutex>
#include <random>

#include "runtime/comm/nccl_library.h"
#include "tests/support/emulated_device.h"

namespace hadal::testing {

class EmulatedNccl {
 public:
  explicit EmulatedNccl(uint64_t seed);
  // Fails the test if misuses were recorded and not taken.
  ~EmulatedNccl();

  // The library of the rank with this device.
  std::unique_ptr<NcclLibrary> LibraryFor(EmulatedDevice& device);

  // Makes the message after the first `messages`, over all communicators, fail asynchronously on both sides.
  void FailAfter(int messages, NcclResult error = kNcclRemoteError);
  // Makes all messages after the first `messages` never end.
  void StallAfter(int messages);
  int messages() const;
  // Calls of all ranks, other than those that ask (Version, AsyncError, ErrorText) or begin or end a group.
  int calls() const;
  // Groups of messages that ranks have started; a message outside of a group is one.
  int groups() const;
  // The most thread blocks of a transfer, of each communicator of its rank 0, in the order of joining.
  std::vector<int> blocks() const;
  // Returns and clears the recorded misuses.
  std::vector<std::string> TakeMisuses();

 private:
  class Library;
  struct Call;
  class Operation;
  struct Side;
  struct Group;

  void Misuse(Group& group, const std::string& what);
  // Starts calls of `rank` as one operation, and checks them against its partners' and for ranks that wait for each
  // other in a circle.
  void StartOperation(Group& group, int rank, std::shared_ptr<Operation> operation);
  void CheckLength(Group& group, int rank, const Operation& operation, const Call& call);
  void CheckCircle(Group& group, int rank);
  static bool WaitsForItself(const Group& group, int rank, std::vector<int>& path);
  // Advances all messages.
  void Advance();
  void AdvanceGroup(Group& group);
  // Moves a message that `rank` sends if both sides are there. Returns whether it ended.
  bool AdvanceSend(Group& group, int rank, Operation& operation, Call& send);

  mutable std::recursive_mutex mutex_;
  std::mt19937_64 random_;
  bool advancing_ = false;
  int messages_ = 0, calls_ = 0, operations_ = 0;
  std::vector<int> blocks_;
  std::optional<int> fail_after_, stall_after_;
  NcclResult failure_ = kNcclRemoteError;  // of fail_after_
  uint64_t next_id_ = 1;
  std::map<uint64_t, std::unique_ptr<Group>> groups_;
  std::vector<std::string> misuses_;
};

}  // namespace hadal::testing
