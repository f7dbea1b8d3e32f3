// Whether a rank's components are for training or for inference; determines the memory that they reserve.
#pragma once

namespace hadal {

enum class Purpose {
  kTraining,   // also gradients, moments and kept activations
  kInference,  // weights and the buffers of a forward pass
};

}  // namespace hadal
