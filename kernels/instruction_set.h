// The instruction sets that the kernels can use on this CPU. They use the widest.
//
// All sets with fused multiply-adds (AVX2 and wider) give the same bits: every sum has an order of its own, in sixteen
// lanes (kernels/cpu/columns-inl.h) or one chain (kernels/cpu/product.h). SSE4 has no fused multiply-add and rounds
// differently, so a job with one such CPU uses SSE4 on all ranks (launch/world.h). The environment
// variable HADAL_MAX_CPU_ISA, a name of InstructionSetName, sets the widest one allowed.
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

// Returns whether the widest of `sets` has fused multiply-adds.
bool HasFusedMultiplyAdd(InstructionSets sets);

// Makes kernels use the widest of AvailableInstructionSets() that `sets` contains. REQUIRES: there is one; no kernel
// has run.
void UseInstructionSets(InstructionSets sets);

}  // namespace hadal
