// Counts what a kernel's accesses to memory ask of a GPU, from the addresses that its threads use on the executor (executor.h).
//
//   shared memory    wavefronts: 32 banks of 4 bytes, a word of each bank at a time. A warp's accesses of up to 4 bytes go together, those of 8
//                    bytes by half-warps, of 16 by quarter-warps (8 lanes, 128 bytes); lanes that want one word get it at once. A group
//                    takes as many as the bank with the most different words. Least: as many as there are words for 32 banks.
//   device memory    sectors of 32 bytes that a warp's access touches. Least: as many as the bytes would fill that its lanes want, each once.
// Why: what a GPU does at its own speed can be counted without one.
//
// What goes together. On a GPU the lanes of a warp run one instruction; here each lane runs by itself and leaves a list of its accesses between
// two meetings of the warp (barrier, shuffle, fragment, end). The lists are laid side by side: the lane that has most accesses before it goes
// first, with all lanes whose next access has the same place in the source, kind and width. That is what a GPU does where lanes that part
// meet again as soon as they can, and accesses after that are the same for all. It may be wrong
//   - where lanes of a warp part for accesses that have one place in the source (eight.h's, called twice): those of two calls may be taken for one;
//   - where lanes have both skipped something, each something else: what follows may be counted once a side.
// Not counted: what the compiler merges, repeats or keeps in registers; spills; arguments (constant memory); which sectors a cache
// already has: an access that fills half a sector now and half in the next instruction counts the sector twice.
// An array in shared memory is taken to begin at bank 0: exact, unless one access reaches into two arrays.
// Thread safety: as the Executor's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <vector>

namespace hadal::cuda {

enum class AccessKind { kLoad, kStore, kShared };

// Of one kind in one launch. Units: wavefronts or sectors.
struct AccessCount {
  int64_t instructions = 0;  // of warps
  int64_t units = 0, least = 0;

  double ratio() const { return least == 0 ? 1.0 : static_cast<double>(units) / static_cast<double>(least); }
};

struct LaunchCounts {
  AccessCount loads, stores, shared;
};

class AccessCounter {
 public:
  // One entry a launch, in their order.
  const std::vector<LaunchCounts>& launches() const { return launches_; }

  // What the executor tells: a launch begins; a thread touches memory; threads [first, first + count) of a block, whole warps, have met.
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
  // Of one instruction: a lane's access, or null.
  using Instruction = std::array<const Access*, kLanes>;

  static bool SameInstruction(const Access& a, const Access& b);
  void MeetWarp(int first);
  void Count(const Instruction& lanes, const Access& any);

  std::vector<LaunchCounts> launches_;
  std::vector<std::vector<Access>> threads_;  // since the last meeting
};

}  // namespace hadal::cuda
