// An emulation of NCCL for tests: the function table of nccl_library.h between threads of one process, each with an
// emulated device. It is stricter than NCCL, so that a program that passes here does not depend on NCCL's buffering.
//
//   · rendezvous: nothing is transferred before both sides have started a message and all earlier work in their queues
//     is done;
//   · a call returns at once; messages end later, those of different communicators in random order;
//   · the n-th call of one side must match the n-th call of the other: same length, one a send and one a receive. A
//     mismatch is a misuse: both calls are recorded, the communicator fails, and so does the test unless it takes the
//     misuse;
//   · bytes must be on the rank's device; a receive's bytes are NaN from its start to its end, a send's must not change
//     during it;
//   · an abort frees memory and so waits for the rank's other messages in flight; if one of them never ends, because
//     its communicator is not aborted at the same time, that is a misuse;
//   · joining needs both sides, as everything else; destroying or finalizing a communicator with messages in flight is
//     a misuse.
// Threads: any; each library object belongs to one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

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
  // Returns and clears the recorded misuses.
  std::vector<std::string> TakeMisuses();

 private:
  class Library;
  class Call;
  struct Side;
  struct Pair;

  void Misuse(Pair& pair, const std::string& what);
  void CheckCalls(Pair& pair, size_t call);
  // Advances all messages.
  void Advance();
  void AdvancePair(Pair& pair);

  mutable std::recursive_mutex mutex_;
  std::mt19937_64 random_;
  bool advancing_ = false;
  int messages_ = 0;
  std::optional<int> fail_after_, stall_after_;
  NcclResult failure_ = kNcclRemoteError;  // of fail_after_
  uint64_t next_id_ = 1;
  std::map<uint64_t, std::unique_ptr<Pair>> pairs_;
  std::vector<std::string> misuses_;
};

}  // namespace hadal::testing
