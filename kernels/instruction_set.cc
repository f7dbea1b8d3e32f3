#include "kernels/instruction_set.h"

#include <cstdlib>

#include "absl/strings/ascii.h"
#include "hwy/highway.h"
#include "hwy/targets.h"
#include "runtime/check.h"

namespace hadal {
namespace {

// Asks once, because hwy::SupportedTargets also ends what DisableTargets began.
InstructionSets Compiled() {
  static const InstructionSets compiled = hwy::SupportedTargets() & HWY_TARGETS;
  return compiled;
}

// Returns the sets that HADAL_MAX_CPU_ISA allows; all if it sets no limit.
InstructionSets Allowed() {
  const char* variable = std::getenv("HADAL_MAX_CPU_ISA");
  const std::string limit = absl::AsciiStrToUpper(variable == nullptr ? "" : variable);
  for (int bit = 0; bit < 62; ++bit) {
    const InstructionSets set = InstructionSets{1} << bit;
    if (limit == absl::AsciiStrToUpper(hwy::TargetName(set))) return ~(set - 1);  // bits of wider sets are lower
  }
  return ~InstructionSets{0};
}

}  // namespace

InstructionSets AvailableInstructionSets() {
  const InstructionSets compiled = Compiled(), allowed = compiled & Allowed();
  return allowed != 0 ? allowed : compiled;
}

std::string InstructionSetName(InstructionSets sets) {
  return sets == 0 ? "unknown" : hwy::TargetName(sets & -sets);  // bits of wider sets are lower
}

bool HasFusedMultiplyAdd(InstructionSets sets) {
#if HWY_ARCH_X86
  return (sets & (HWY_SSE4 - 1)) != 0;  // bits of wider sets are lower
#else
  return true;
#endif
}

void UseInstructionSets(InstructionSets sets) {
  const InstructionSets compiled = Compiled(), used = AvailableInstructionSets() & sets;
  HADAL_CHECK_NE(used, 0);
  if (used != compiled) hwy::DisableTargets(compiled & ~used);
}

}  // namespace hadal
