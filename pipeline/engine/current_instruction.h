// CurrentInstruction records which instruction of its program (its list of instructions for a step,
// pipeline/schedule/schedule.h) a rank executes, for the watchdog's message about a stuck rank.
// Thread safety: one thread, which runs the program, calls Set; any thread may call the other functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "pipeline/schedule/schedule.h"

namespace hadal {

class CurrentInstruction {
 public:
  // Records that the program of `step` (counted from 0) has reached instruction `index` (from 0) of `count`.
  void Set(int64_t step, size_t index, size_t count, const Instruction& instruction);

  // Returns what Set has recorded, with steps and instructions counted from 1: "step 12, instruction 17 of 40:
  // receive_forward(chunk 0, micro-batch 3)", or "before the first step".
  std::string Describe() const;
  // When Set was last called, in MonotonicSeconds(); nullopt before the first call.
  std::optional<double> since_seconds() const;

 private:
  mutable std::mutex mutex_;
  std::optional<double> since_seconds_;
  int64_t step_ = 0;
  size_t index_ = 0, count_ = 0;
  Instruction instruction_;
};

}  // namespace hadal
