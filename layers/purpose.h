// What the parts of a rank are built for, which decides the memory that they reserve.
#pragma once

namespace hadal {

enum class Purpose {
  kTraining,   // gradients, moments and kept activations as well
  kInference,  // weights and what a forward pass needs
};

}  // namespace hadal
