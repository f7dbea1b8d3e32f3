// Whether a gradient that fp32 kernels made is that of their loss: central differences along random directions.
//
//   D = (L(θ + u) − L(θ − u)) / 2 = g·u + E,    u = step · N(0, 1) in every element
//   |E| ≤ curvature · step · ‖g‖ + rounding
// The first term is what bends L between θ − u and θ + u, its third derivative; the second is what rounding leaves in a
// value of L. The step lets the loss move by 300 times its rounding, step · ‖g‖ = 300 · rounding, as long as u stays
// short and its elements small.
//
// Along a random direction g·u is about step · ‖g‖, and an error e of the gradient shows as step · ‖e‖: with a
// curvature of 1% no error of more than a few percent of ‖g‖ hides, wherever in the parameter it lies. L must be smooth
// there: no ReLU may switch. It sums what the kernels leave in double, so that its rounding is that of the kernels
// alone.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "gtest/gtest.h"

namespace hadal::testing {

struct DifferenceModel {
  double rounding = 0;
  double curvature = 1e-2;
  double largest_step = 5e-2;
  double longest = 0.2;  // of ‖u‖, about step · sqrt(elements)
  int directions = 3;
  // Whether the gradient may be 0. Else a step that moves the loss by less than four times what is allowed for E is a
  // failure: anything would pass.
  bool may_vanish = false;
};

// Passes when the model holds along all its directions. `loss` reads `variable`, which is restored. `seed` chooses the
// directions.
::testing::AssertionResult IsGradientAlongDirections(std::span<float> variable, std::span<const float> gradient,
                                                     const std::function<double()>& loss, const DifferenceModel& model,
                                                     uint32_t seed);

}  // namespace hadal::testing
