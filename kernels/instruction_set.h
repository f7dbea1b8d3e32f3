// The instruction sets that the CPU kernels can use on this CPU. A kernel uses the widest of them.
//
// All sets with fused multiply-adds (AVX2 and wider) give the same bits: the order of every sum is fixed, in sixteen
// lanes (kernels/cpu/columns-inl.h) or one chain (kernels/cpu/product.h), whatever the set. SSE4 has no fused
// multiply-add and rounds differently, so a job with one such CPU uses SSE4 on all ranks (launch/world.h). The
// environment variable HADAL_MAX_CPU_ISA names the widest set allowed, a result of InstructionSetName in upper or lower
// case. An unknown name, or one that allows no compiled set, has no effect.
// Threads: one thread calls these functions, before any kernel runs.
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

// Makes kernels use the widest set that is in `sets` and in AvailableInstructionSets(). REQUIRES: there is one; no
// kernel has run.
void UseInstructionSets(InstructionSets sets);

}  // namespace hadal
