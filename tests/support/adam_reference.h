// One Adam step in double precision: the textbook form with bias-corrected moments (Kingma & Ba 2015, algorithm 1),
// with the epsilon of the efficient form (added before the correction of the second moment).
#pragma once

#include <vector>

#include "kernels/adam.h"

namespace hadal::testing {

struct AdamReferenceState {
  std::vector<double> parameter, first_moment, second_moment;
};

// Reads only the scalars of `args`, not its vectors.
void AdamReference(const AdamArgs& args, const std::vector<float>& gradient, AdamReferenceState& state);

}  // namespace hadal::testing
