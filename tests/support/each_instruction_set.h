// Runs a test body once for each instruction set that the kernels are compiled for and this CPU has.
#pragma once

#include "gtest/gtest.h"
#include "hwy/targets.h"

namespace hadal::testing {

// Returns to the best instruction set at the end. Not thread-safe: the choice is the process's.
template <typename Body>
void ForEachInstructionSet(Body&& body) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::GetChosenTarget().Update(target);
    body();
  }
  hwy::GetChosenTarget().DeInit();
}

}  // namespace hadal::testing
