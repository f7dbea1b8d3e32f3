// NCCL without a GPU, for tests: the table of nccl_library.h among threads of one process, each with an emulated
// device, and stricter than NCCL, so that a program that passes here does not live on what NCCL happens to buffer.
//
//   · rendezvous: nothing moves before both sides have started a message, and all that their queues have before it is
//     done;
//   · a call returns at once; messages end later, those of different communicators in random order;
//   · the n-th call of one side must be the other side of the n-th call of the other: same length, one a send and one a
//     receive. What is not is a misuse: both sides' calls are kept, the communicator fails, and the test fails unless
//     it takes the misuse;
//   · bytes must lie on the rank's device; a receive's are NaN from its start to its end, a send's must not change
//     meanwhile;
//   · an abort gives memory back and so waits for the rank's other messages under way: one that never ends, because its
//     communicator is not aborted beside it, is a misuse;
//   · joining, like everything, needs both sides; a communicator that is destroyed or finalized with messages under way
//     is a misuse.
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
  // Fails the test where there were misuses that nobody has taken.
  ~EmulatedNccl();

  // The library as the rank with this device sees it.
  std::unique_ptr<NcclLibrary> LibraryFor(EmulatedDevice& device);

  // After so many messages, of all communicators, the one that would come next fails asynchronously on both its sides.
  void FailAfter(int messages);
  // After so many messages nothing ends any more.
  void StallAfter(int messages);
  int messages() const;
  // What was done wrong, and forgets it.
  std::vector<std::string> TakeMisuses();

 private:
  class Library;
  class Call;
  struct Side;
  struct Pair;

  void Misuse(Pair& pair, const std::string& what);
  void CheckCalls(Pair& pair, size_t call);
  // Moves everything along.
  void Advance();
  void AdvancePair(Pair& pair);

  mutable std::recursive_mutex mutex_;
  std::mt19937_64 random_;
  bool advancing_ = false;
  int messages_ = 0;
  std::optional<int> fail_after_, stall_after_;
  uint64_t next_id_ = 1;
  std::map<uint64_t, std::unique_ptr<Pair>> pairs_;
  std::vector<std::string> misuses_;
};

}  // namespace hadal::testing
