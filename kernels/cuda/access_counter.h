// Counts what a kernel's memory accesses would cost a GPU, from the addresses that its threads use on the executor
// (executor.h). So this can be known without a GPU. access_counter.md has how lanes' accesses are grouped, and where
// that may be wrong.
//
//   shared memory    wavefronts: 32 banks of 4 bytes, one word of each bank at a time
//   device memory    sectors of 32 bytes that a warp's access touches
// Each count comes with the least possible for the same bytes.
// Not counted: what the compiler merges, repeats or keeps in registers; spills; arguments (constant memory); sectors
// that a cache already holds (an access that fills half a sector now and half in the next instruction counts the sector
// twice).
// Thread safety: that of the Executor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <vector>

namespace hadal::cuda {

enum class AccessKind { kLoad, kStore, kShared };

// Accesses of one kind in one launch. Units: wavefronts or sectors.
struct AccessCount {
  int64_t instructions = 0;  // executed by warps
  int64_t units = 0, least = 0;

  double ratio() const { return least == 0 ? 1.0 : static_cast<double>(units) / static_cast<double>(least); }
};

struct LaunchCounts {
  AccessCount loads, stores, shared;
};

class AccessCounter {
 public:
  // One entry a launch, in order.
  const std::vector<LaunchCounts>& launches() const { return launches_; }

  // The executor calls these: Begin when a launch begins; Note when a thread touches memory; Meet when threads [first,
  // first + count) of a block, whole warps, have met.
  void Begin() { launches_.emplace_back(); }
  void Note(int thread, AccessKind kind, const void* address, size_t bytes, const std::source_location& where);
  void Meet(int first, int count);

 private:
  static constexpr int kLanes = 32;
  struct Access {
    AccessKind kind;
    uint32_t bytes;
    uintptr_t address;
    const char* file;
    uint32_t line, column;
  };
  // One instruction of a warp: each lane's access, or null.
  using Instruction = std::array<const Access*, kLanes>;

  static bool SameInstruction(const Access& a, const Access& b);
  void MeetWarp(int first);
  void Count(const Instruction& lanes, const Access& any);

  std::vector<LaunchCounts> launches_;
  std::vector<std::vector<Access>> threads_;  // since the last meeting
};

}  // namespace hadal::cuda
