// CPU implementation of kernels/top_candidates.h; arguments have been checked.
#pragma once

#include "kernels/top_candidates.h"

namespace hadal::cpu {

void TopCandidates(const Stream& stream, const TopCandidatesArgs& args);

}  // namespace hadal::cpu
