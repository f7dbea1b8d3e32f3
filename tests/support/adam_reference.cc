#include "tests/support/adam_reference.h"

#include <cmath>

namespace hadal::testing {

void AdamReference(const AdamArgs& args, const std::vector<float>& gradient, AdamReferenceState& state) {
  const double root2 = std::sqrt(1 - std::pow(args.beta2, args.update));
  for (size_t i = 0; i < gradient.size(); ++i) {
    const double g = args.gradient_scale * gradient[i];
    double& p = state.parameter[i];
    double& m = state.first_moment[i];
    double& v = state.second_moment[i];
    m = args.beta1 * m + (1 - args.beta1) * g;
    v = args.beta2 * v + (1 - args.beta2) * g * g;
    const double corrected_m = m / (1 - std::pow(args.beta1, args.update));
    const double corrected_root_v = std::sqrt(v) / root2;
    p *= 1 - args.learning_rate * args.weight_decay;
    p -= args.learning_rate * corrected_m / (corrected_root_v + args.epsilon / root2);
  }
}

}  // namespace hadal::testing
