// CurrentInstruction records which instruction of its program a rank executes, for the watchdog's message about a stuck
// rank.
// Thread safety: one thread, which runs the program, calls Set; any thread may call the others.
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
  // The program of `step` (from 0, as data are counted) has reached instruction `index` (0-based) of `count`.
  void Set(int64_t step, size_t index, size_t count, const Instruction& instruction);

  // Returns the place in words, steps counted from 1: "step 12, instruction 17 of 40: receive_forward(chunk 0,
  // micro-batch 3)", or "before the first step".
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
