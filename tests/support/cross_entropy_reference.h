// Cross-entropy with label smoothing in double precision by the definition in kernels/cross_entropy.h.
#pragma once

#include <cstdint>
#include <vector>

namespace hadal::testing {

struct CrossEntropyReferenceResult {
  std::vector<double> loss, nll;  // [R]
  std::vector<double> d_logits;   // [R, V]
};

// `logits` is [targets.size(), vocabulary], dense.
CrossEntropyReferenceResult CrossEntropyReference(const std::vector<double>& logits, int64_t vocabulary,
                                                  const std::vector<int32_t>& targets, double label_smoothing,
                                                  double z_loss, double gradient_scale);

}  // namespace hadal::testing
