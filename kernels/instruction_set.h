// The instruction sets that the kernels can use on this CPU. They use the widest.
//
// Ranks of one job must use the same set, because sums in registers of another width have other bits. Ranks therefore
// exchange their sets and use the widest one that all have (launch/common_program.h). The environment variable
// HADAL_MAX_CPU_ISA, a name of InstructionSetName, sets the widest one allowed: with "AVX2" an AVX-512 machine computes
// the bits of a machine that has only AVX2.
// Threads: one, before any kernel runs.
#pragma once

#include <cstdint>
#include <string>

namespace hadal {

// One bit per set, numbered as in Highway (hwy/detect_targets.h).
using InstructionSets = int64_t;

// Returns the sets that this CPU has, the kernels are compiled for and HADAL_MAX_CPU_ISA allows. Empty only on a
// CPU without SSE4.2, AES and PCLMUL, which hadal does not support.
InstructionSets AvailableInstructionSets();

// Returns Highway's name of the widest of `sets`: "AVX3", "AVX2", …; "unknown" for none.
std::string InstructionSetName(InstructionSets sets);

// Makes kernels use the widest of `sets`. REQUIRES: a non-empty subset of AvailableInstructionSets(); no kernel has
// run.
void UseInstructionSets(InstructionSets sets);

}  // namespace hadal
