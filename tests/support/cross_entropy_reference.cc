#include "tests/support/cross_entropy_reference.h"

#include <algorithm>
#include <cmath>

namespace hadal::testing {

CrossEntropyReferenceResult CrossEntropyReference(const std::vector<double>& logits, int64_t vocabulary,
                                                  const std::vector<int32_t>& targets, double label_smoothing,
                                                  double z_loss, double gradient_scale) {
  CrossEntropyReferenceResult result;
  const double share = label_smoothing == 0 ? 0 : label_smoothing / (vocabulary - 1);
  for (size_t i = 0; i < targets.size(); ++i) {
    const double* z = &logits[i * vocabulary];
    const double maximum = *std::max_element(z, z + vocabulary);
    double sum = 0;
    for (int64_t v = 0; v < vocabulary; ++v) sum += std::exp(z[v] - maximum);
    const double log_sum_exp = maximum + std::log(sum);
    const double nll = log_sum_exp - z[targets[i]];
    double loss = (1 - label_smoothing - share) * nll + z_loss * log_sum_exp * log_sum_exp;
    for (int64_t v = 0; v < vocabulary; ++v) {
      loss += share * (log_sum_exp - z[v]);
      const double wanted = share + (v == targets[i] ? 1 - label_smoothing - share : 0);
      result.d_logits.push_back(gradient_scale *
                                ((1 + 2 * z_loss * log_sum_exp) * std::exp(z[v] - log_sum_exp) - wanted));
    }
    result.nll.push_back(nll);
    result.loss.push_back(loss);
  }
  return result;
}

}  // namespace hadal::testing
