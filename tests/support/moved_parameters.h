// Moves parameters away from their special initial values, so that errors in their use are visible in an untrained
// model, and from points where the loss is not smooth.
#pragma once

#include "layers/parameter_store.h"

namespace hadal::testing {

// Adds 0.1·N(0, 1), a function of (seed, parameter, element) alone, to the biases, norms, scalars and other vectors
// that this rank owns, and to the matrices that start from zero.
void MoveParametersOffTheirStart(const ParameterStore& parameters, uint64_t seed);

// Moves every hidden unit of the feed-forward layers away from its ReLU's kink, where finite differences are not valid:
// adds 5 and -5 alternately to the biases before it, or 5 to all units if they share one shift. Then half of the units
// are inactive, or none.
void MoveHiddenUnitsOffTheBend(const ParameterStore& parameters);

}  // namespace hadal::testing
