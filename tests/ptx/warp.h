// A block's run: its warps one after another up to the next barrier, a warp's lanes together where they are at the same
// instruction. Of lanes that have diverged, those at the least instruction go first; lanes wait at a shuffle, a
// matrix instruction or a barrier until the whole warp is there, which the kernels' rules promise.
#pragma once

#include "tests/ptx/memory.h"
#include "tests/ptx/program.h"

namespace hadal::ptx {

struct Grid {
  int64_t blocks_x = 1, blocks_y = 1;
  int threads = kLanes;
};

// What the instructions of a block's warps share.
struct BlockState {
  Global& global;
  Region& shared;
  Region& parameters;
  Clock clock;
};

class Warp {
 public:
  Warp(const Kernel& kernel, const Grid& grid, int first_thread, BlockState& block);

  void Start(int64_t block_x, int64_t block_y);
  // Runs to the next barrier and returns true, or to the end and returns false.
  bool Run();

  uint64_t* lanes(int reg) { return &registers_[static_cast<int64_t>(reg) * kLanes]; }
  int thread(int lane) const { return first_thread_ + lane; }
  BlockState& block() { return block_; }
  const Instruction* current() const { return current_; }
  int64_t steps() const { return steps_; }  // instructions executed, times 32

 private:
  // Runs `lanes`, all at `at`, until they meet others at `next`, diverge, wait or end.
  void RunTogether(int at, int next, uint32_t lanes);
  void SetAt(uint32_t lanes, int at);

  const Kernel& kernel_;
  const int first_thread_;
  BlockState& block_;
  std::vector<uint64_t> registers_;
  std::array<int, kLanes> at_{};
  uint32_t alive_ = kAllLanes, waiting_ = 0;
  const Instruction* current_ = nullptr;
  int64_t steps_ = 0;
};

// Runs all blocks and advances `clock`. `parameters` has kernel.parameter_bytes. Returns the number of
// lane-instructions.
int64_t Launch(const Kernel& kernel, const Grid& grid, Region& parameters, Global& global, Clock& clock);

}  // namespace hadal::ptx
