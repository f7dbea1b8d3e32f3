// Starts a deeper model from the weights of a trained one by repeating its layers.
//
//   layer i of n starts as layer floor(i m / n) of the checkpoint's m; other parameters start as themselves
// The n/m copies of a layer follow one another. With branch gains in proportion to 1/n (completep) they are n/m Euler
// steps in the place of one, so the deeper model begins at nearly the checkpoint's loss; with other methods they are
// only initial values. Source: Chang et al., "Multi-level residual networks from dynamical systems view", ICLR 2018.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "pipeline/checkpoint/checkpoint_manifest.h"

namespace hadal {

// Returns for every parameter of `model` the index of the checkpoint's parameter that it starts from.
// Errors: FailedPrecondition, naming the first parameter of either for which the other has none or one of another shape
// (so it is for methods with a table over all layers, dlcl), or the stack of which the checkpoint has more layers.
absl::StatusOr<std::vector<int32_t>> DeepenedParameters(const std::vector<CheckpointParameter>& checkpoint,
                                                        const std::vector<CheckpointParameter>& model);

}  // namespace hadal
