// Runs a test body for each instruction set that the kernels are compiled for and this CPU supports, or for one of
// them. A body may take whether the set has fused multiply-adds.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/detect_targets.h"
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
    if constexpr (std::is_invocable_v<Body, bool>) {
#if HWY_ARCH_X86
      body(target < HWY_SSE4);
#else
      body(true);
#endif
    } else {
      body();
    }
  }
}

// `run` on this instruction set.
template <typename Run>
auto Only(int64_t target, const Run& run) {
  return [target, run](auto&&... arguments) {
    const OnInstructionSet only(target);
    return run(arguments...);
  };
}

// The backends of a conformance test: make(target) for each instruction set, named after it.
template <typename Make>
auto BackendsOfInstructionSets(const Make& make) {
  std::vector<decltype(make(int64_t{0}))> backends;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    backends.push_back(make(target));
    backends.back().name = hwy::TargetName(target);
  }
  return backends;
}

}  // namespace hadal::testing
