// Counts the cost of a kernel's memory accesses on a GPU, from the addresses that its threads use on the emulator
// (kernel_emulator.h), without a GPU. access_counter.md describes how accesses of lanes are grouped, and the method's
// limits.
//
//   shared memory    wavefronts: 32 banks of 4 bytes, one word of each bank at a time
//   device memory    sectors of 32 bytes that a warp's access touches
// Each count is accompanied by the least possible for the same bytes.
// Not counted: accesses that the compiler merges, repeats or keeps in registers; spills; arguments (constant memory).
// Sectors in a cache count again (an access that fills half a sector now and half in the next instruction counts it
// twice).
// Thread safety: that of the KernelEmulator.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <vector>

namespace hadal::cuda {

enum class AccessKind { kLoad, kStore, kSharedLoad, kSharedStore };
inline bool InSharedMemory(AccessKind kind) { return kind >= AccessKind::kSharedLoad; }

// Accesses of one kind in one launch. Units: wavefronts or sectors.
struct AccessCount {
  int64_t instructions = 0;  // per warp
  int64_t units = 0, least = 0;

  double ratio() const { return least == 0 ? 1.0 : static_cast<double>(units) / static_cast<double>(least); }
};

struct LaunchCounts {
  AccessCount loads, stores, shared;
};

class AccessCounter {
 public:
  // One entry per launch, in order.
  const std::vector<LaunchCounts>& launches() const { return launches_; }

  // Called by the emulator: Begin when a launch begins; Note when a thread accesses memory; Meet when threads [first,
  // first + count) of a block, whole warps, have synchronised.
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
  std::vector<std::vector<Access>> threads_;  // since the last Meet
};

}  // namespace hadal::cuda
