#include "kernels/instruction_set.h"

#include "hwy/highway.h"
#include "hwy/targets.h"

namespace hadal {

std::string InstructionSetName() {
  // Bits of better sets are lower (hwy/detect_targets.h).
  const int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  return hwy::TargetName(targets & -targets);
}

}  // namespace hadal
