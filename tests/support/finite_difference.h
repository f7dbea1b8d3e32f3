// Central differences, which check the gradients of the double-precision references.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "gtest/gtest.h"

namespace hadal::testing {

// Passes if `gradient` is d loss() / d variable to a relative 1e-6 of its largest entry. `loss` reads `variable`; both
// are in double, so with a step of 1e-5 truncation and rounding leave about 1e-9. Restores `variable`.
inline ::testing::AssertionResult IsGradient(std::vector<double>& variable, const std::function<double()>& loss,
                                             const std::vector<double>& gradient) {
  if (variable.size() != gradient.size()) {
    return ::testing::AssertionFailure() << "sizes differ: " << variable.size() << " vs. " << gradient.size();
  }
  constexpr double kStep = 1e-5;
  double largest = 0;
  for (const double g : gradient) largest = std::max(largest, std::abs(g));
  for (size_t i = 0; i < variable.size(); ++i) {
    const double value = variable[i];
    variable[i] = value + kStep;
    const double above = loss();
    variable[i] = value - kStep;
    const double below = loss();
    variable[i] = value;
    const double slope = (above - below) / (2 * kStep);
    if (!(std::abs(slope - gradient[i]) <= 1e-6 * (1 + largest))) {
      return ::testing::AssertionFailure() << "element " << i << ": gradient " << gradient[i] << ", slope " << slope;
    }
  }
  return ::testing::AssertionSuccess();
}

// Σ a ⊙ b: turns an output into the scalar loss whose gradient at that output is `b`.
inline double Dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace hadal::testing
