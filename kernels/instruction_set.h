// The instruction sets that the kernels can use on this CPU; their dispatch, and oneDNN's, choose the widest.
//
// Ranks of one job must choose alike: sums in registers of another width have other bits. So they bring their masks together and all take
// the widest set that all have (launch/rank_agreement.h). ONEDNN_MAX_CPU_ISA, oneDNN's own variable, limits all kernels alike: an AVX-512
// machine with "AVX2" gives the bits of one that has no more.
// Threads: one, before any kernel runs.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace hadal {

// A bit a set, as Highway numbers them (hwy/detect_targets.h).
using InstructionSets = int64_t;

// Those that this CPU has, the kernels are compiled for and ONEDNN_MAX_CPU_ISA allows. Never empty.
InstructionSets AvailableInstructionSets();

// The widest of `sets`: "AVX3", "AVX2", …, Highway's names; "unknown" for none.
std::string InstructionSetName(InstructionSets sets);

// From here on kernels and oneDNN use the widest of `sets`.  REQUIRES: a part of AvailableInstructionSets(), not empty; no kernel has run.
// Errors: FailedPrecondition where oneDNN has chosen already.
absl::Status UseInstructionSets(InstructionSets sets);

}  // namespace hadal
