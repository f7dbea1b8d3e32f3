#include "tests/support/directional_difference.h"

#include <algorithm>
#include <cmath>

#include "tests/support/random_inputs.h"

namespace hadal::testing {
namespace {

struct Difference {
  double observed = 0, predicted = 0;  // D, g·u
};

// `variable` is left at θ − u. u is what fp32 makes of it: half the way between both ends.
Difference Along(const std::vector<float>& direction, std::span<float> variable, std::span<const float> gradient,
                 const std::function<double()>& loss) {
  const std::vector<float> start(variable.begin(), variable.end());
  std::vector<float> upper(start.size());
  for (size_t i = 0; i < start.size(); ++i) variable[i] = upper[i] = start[i] + direction[i];
  const double above = loss();
  for (size_t i = 0; i < start.size(); ++i) variable[i] = start[i] - direction[i];
  Difference difference{.observed = (above - loss()) / 2};
  for (size_t i = 0; i < start.size(); ++i) {
    difference.predicted += (double{upper[i]} - double{variable[i]}) / 2 * gradient[i];
  }
  return difference;
}

double Norm(std::span<const float> values) {
  double sum = 0;
  for (const float v : values) sum += double{v} * v;
  return std::sqrt(sum);
}

}  // namespace

::testing::AssertionResult IsGradientAlongDirections(std::span<float> variable, std::span<const float> gradient,
                                                     const std::function<double()>& loss, const DifferenceModel& model,
                                                     uint32_t seed) {
  if (variable.size() != gradient.size()) {
    return ::testing::AssertionFailure() << "sizes differ: " << variable.size() << " vs. " << gradient.size();
  }
  const std::vector<float> start(variable.begin(), variable.end());
  const double norm = Norm(gradient);
  const double longest = model.longest / std::sqrt(static_cast<double>(variable.size()));
  const double step = std::min({model.largest_step, longest, 300 * model.rounding / norm});
  const double allowed = model.curvature * step * norm + model.rounding;
  if (!model.may_vanish && step * norm < 4 * allowed) {
    return ::testing::AssertionFailure() << "the loss moves by about " << step * norm
                                         << ", which tells nothing: " << allowed << " is allowed for its error";
  }
  for (int k = 0; k < model.directions; ++k) {
    const std::vector<float> direction =
        NormalValues(std::ssize(variable), seed * model.directions + k, static_cast<float>(step));
    const Difference difference = Along(direction, variable, gradient, loss);
    std::ranges::copy(start, variable.begin());
    if (!(std::abs(difference.observed - difference.predicted) <= allowed)) {
      return ::testing::AssertionFailure()
             << "direction " << k << ": the loss moves by " << difference.observed << ", its gradient says "
             << difference.predicted << ", allowed difference " << allowed;
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace hadal::testing
