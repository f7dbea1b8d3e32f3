// Runs a test body for each instruction set that the kernels are compiled for and this CPU supports, or for one of
// them.
#pragma once

#include <cstdint>

#include "gtest/gtest.h"
#include "hwy/targets.h"

namespace hadal::testing {

// While the object lives, kernels use this instruction set. Not thread-safe: the choice is global to the process.
class OnInstructionSet {
 public:
  explicit OnInstructionSet(int64_t target) { hwy::GetChosenTarget().Update(target); }
  ~OnInstructionSet() { hwy::GetChosenTarget().DeInit(); }
  OnInstructionSet(const OnInstructionSet&) = delete;
  OnInstructionSet& operator=(const OnInstructionSet&) = delete;
};

template <typename Body>
void ForEachInstructionSet(Body&& body) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    const OnInstructionSet only(target);
    body();
  }
}

}  // namespace hadal::testing
