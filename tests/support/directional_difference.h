// Checks that a gradient computed by fp32 kernels is the gradient of their loss, by central differences along random
// directions.
//
//   D = (L(θ + u) − L(θ − u)) / 2 = g·u + E,    u = step · N(0, 1) in every element
//   |E| ≤ curvature · step · ‖g‖ + rounding
// The first term bounds the effect of L's third derivative between θ − u and θ + u; the second bounds the rounding
// error of a value of L. The step is chosen so that the loss changes by 300 times its rounding error, step · ‖g‖ = 300
// · rounding, unless u or its elements would become too large.
//
// Along a random direction g·u is about step · ‖g‖, and an error e of the gradient changes it by about step · ‖e‖. So
// with a curvature of 1% every error above a few percent of ‖g‖ is detected, wherever in the parameter it is. L must be
// smooth there: no ReLU may switch. L sums the kernels' outputs in double, so that only the kernels round.
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
  // Whether the gradient may be 0. If not, a step that changes the loss by less than four times the bound of E fails
  // the test, because any gradient would pass.
  bool may_vanish = false;
};

// Passes if the bound holds along all directions. `loss` reads `variable`, which is restored. `seed` selects the
// directions.
::testing::AssertionResult IsGradientAlongDirections(std::span<float> variable, std::span<const float> gradient,
                                                     const std::function<double()>& loss, const DifferenceModel& model,
                                                     uint32_t seed);

}  // namespace hadal::testing
