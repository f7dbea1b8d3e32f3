// Purpose: whether a rank allocates for training or only for inference. Constructors use it to choose what memory they
// reserve.
#pragma once

namespace hadal {

enum class Purpose {
  kTraining,   // also gradients, moments and kept activations
  kInference,  // weights and the buffers of a forward pass
};

}  // namespace hadal
