#include "kernels/instruction_set.h"

#include <dnnl.h>

#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "hwy/highway.h"
#include "hwy/targets.h"
#include "runtime/check.h"

namespace hadal {
namespace {

InstructionSets Compiled() { return hwy::SupportedTargets() & HWY_TARGETS; }

#if HWY_ARCH_X86

// Instruction sets, widest first, with oneDNN's names for them in its variable and in its interface. oneDNN's names
// between these (AVX512_CORE_BF16, AVX2_VNNI, …) add nothing that fp32 uses.
struct Level {
  InstructionSets set;
  const char* name;
  dnnl_cpu_isa_t isa;
};
constexpr Level kLevels[] = {{HWY_AVX3_DL, "AVX512_CORE_VNNI", dnnl_cpu_isa_all},
                             {HWY_AVX3, "AVX512_CORE", dnnl_cpu_isa_avx512_core},
                             {HWY_AVX2, "AVX2", dnnl_cpu_isa_avx2},
                             {HWY_SSE4, "SSE41", dnnl_cpu_isa_sse41}};

// Returns the sets that the variable allows; all if it sets no limit.
InstructionSets Allowed() {
  const char* variable = std::getenv("ONEDNN_MAX_CPU_ISA");
  if (variable == nullptr) variable = std::getenv("DNNL_MAX_CPU_ISA");
  std::string limit = absl::AsciiStrToUpper(variable == nullptr ? "" : variable);
  if (limit == "AVX") limit = "SSE41";
  if (limit == "AVX2_VNNI" || limit == "AVX512_MIC" || limit == "AVX512_MIC_4OPS") limit = "AVX2";
  for (const Level& level : kLevels) {
    if (limit == level.name) return ~(level.set - 1);  // bits of wider sets are lower
  }
  return ~InstructionSets{0};
}

absl::Status LimitOneDnn(InstructionSets sets) {
  for (const Level& level : kLevels) {
    if ((sets & level.set) == 0) continue;
    if (level.isa == dnnl_cpu_isa_all) return absl::OkStatus();
    if (dnnl_set_max_cpu_isa(level.isa) == dnnl_success) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat("oneDNN cannot be limited to ", level.name,
                                                      " any more; give all ranks ONEDNN_MAX_CPU_ISA=", level.name));
  }
  return absl::FailedPreconditionError("oneDNN has no name for the instruction sets that all ranks have");
}

#else

InstructionSets Allowed() { return ~InstructionSets{0}; }
absl::Status LimitOneDnn(InstructionSets sets) { return absl::OkStatus(); }

#endif

}  // namespace

InstructionSets AvailableInstructionSets() {
  const InstructionSets compiled = Compiled(), allowed = compiled & Allowed();
  return allowed != 0 ? allowed : compiled;
}

std::string InstructionSetName(InstructionSets sets) {
  return sets == 0 ? "unknown" : hwy::TargetName(sets & -sets);  // bits of wider sets are lower
}

absl::Status UseInstructionSets(InstructionSets sets) {
  const InstructionSets compiled = Compiled();
  HADAL_CHECK(sets != 0 && (sets & ~compiled) == 0);
  if (sets == compiled) return absl::OkStatus();
  hwy::DisableTargets(compiled & ~sets);
  return LimitOneDnn(sets);
}

}  // namespace hadal
