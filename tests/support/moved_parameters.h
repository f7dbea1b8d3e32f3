// Moves parameters off the special values they start from, so that a mistake in their use shows in a model that is not
// trained, and to where a loss is smooth.
#pragma once

#include <cstdint>

#include "layers/parameter_store.h"

namespace hadal::testing {

// Adds 0.1·N(0, 1), a function of (seed, parameter, element) alone, to the biases, norms, scalars and other vectors
// that this rank owns, and to the matrices that start from zero.
void MoveParametersOffTheirStart(const ParameterStore& parameters, uint64_t seed);

// Takes every hidden unit of the feed-forward layers far from its ReLU's bend, where finite differences tell nothing:
// adds 5 and -5 in turns to the biases in front of it, or 5 to all units where they share one shift. Then half of the
// units rest, or none.
void MoveHiddenUnitsOffTheBend(const ParameterStore& parameters);

}  // namespace hadal::testing
