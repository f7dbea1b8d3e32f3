// Moves parameters off the special values they start from, so that a mistake in their use shows in a model that is not
// trained.
#pragma once

#include <cstdint>

#include "layers/parameter_store.h"

namespace hadal::testing {

// Adds 0.1·N(0, 1), a function of (seed, parameter, element) alone, to the biases, norms, scalars and other vectors
// that this rank owns, and to the matrices that start from zero.
void MoveParametersOffTheirStart(const ParameterStore& parameters, uint64_t seed);

}  // namespace hadal::testing
