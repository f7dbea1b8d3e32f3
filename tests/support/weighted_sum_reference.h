// The reference for kernels/weighted_sum.h: plain loops in double precision; `size` elements per term.
#pragma once

#include <cstddef>
#include <vector>

namespace hadal::testing {

struct WeightedSumReference {
  std::vector<double> x, weights;
  size_t size = 0;

  std::vector<double> Forward() const {
    std::vector<double> y(size, 0);
    for (size_t k = 0; k < weights.size(); ++k) {
      for (size_t i = 0; i < size; ++i) y[i] += weights[k] * x[k * size + i];
    }
    return y;
  }
  struct Gradients {
    std::vector<double> dx, d_weights;
  };
  Gradients Backward(const std::vector<double>& dy) const {
    Gradients g{std::vector<double>(x.size()), std::vector<double>(weights.size(), 0)};
    for (size_t k = 0; k < weights.size(); ++k) {
      for (size_t i = 0; i < size; ++i) {
        g.dx[k * size + i] = weights[k] * dy[i];
        g.d_weights[k] += dy[i] * x[k * size + i];
      }
    }
    return g;
  }
};

}  // namespace hadal::testing
