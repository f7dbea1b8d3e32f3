// The widest instruction set that this CPU has and the kernels are compiled for: what their dispatch chooses.
//
// Ranks of one job must choose alike: sums in registers of another width have other bits.
#pragma once

#include <string>

namespace hadal {

// "AVX3", "AVX2", …: Highway's names.
std::string InstructionSetName();

}  // namespace hadal
