// Top candidates on the CPU. kernels/top_candidates.cc checks the arguments.
#pragma once

#include "kernels/top_candidates.h"

namespace hadal::cpu {

void TopCandidates(const Stream& stream, const TopCandidatesArgs& args);

}  // namespace hadal::cpu
