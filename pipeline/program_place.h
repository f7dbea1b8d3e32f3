// Where in its program a rank is: what the watchdog prints about a rank that does not get on.
//
// Threads: Set by the thread that runs the program, the others by any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "pipeline/schedule.h"

namespace hadal {

class ProgramPlace {
 public:
  // The program of `step` has come to its instruction `index` of `count`.
  void Set(int64_t step, size_t index, size_t count, const Instruction& instruction);

  // "step 12, instruction 17 of 40: receive_forward(chunk 0, micro-batch 3)", or "before the first step".
  std::string Describe() const;
  // When Set was last called, in MonotonicSeconds(); nothing before.
  std::optional<double> since_seconds() const;

 private:
  mutable std::mutex mutex_;
  std::optional<double> since_seconds_;
  int64_t step_ = 0;
  size_t index_ = 0, count_ = 0;
  Instruction instruction_;
};

}  // namespace hadal
