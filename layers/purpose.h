// What the parts of a rank are built for. Decides which memory they reserve.
#pragma once

namespace hadal {

enum class Purpose {
  kTraining,   // gradients, moments and kept activations as well
  kInference,  // weights and what a forward pass needs
};

}  // namespace hadal
