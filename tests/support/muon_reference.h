// Muon's orthogonalisation in double precision, by plain loops (kernels/orthogonalize.h has the formula).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/orthogonalize.h"

namespace hadal::testing {

// `u` [rows, columns], in place. As torch.optim.Muon: a tall matrix is transposed, and a·X is added to the product.
inline void OrthogonalizeReference(std::vector<double>& u, int64_t rows, int64_t columns, const NewtonSchulz& by) {
  const int64_t n = std::min(rows, columns), m = std::max(rows, columns);
  const auto at = [&](int64_t i, int64_t j) -> double& {  // of the wide one of U and its transpose
    return rows <= columns ? u[i * columns + j] : u[j * columns + i];
  };
  double squares = 0;
  for (const double value : u) squares += value * value;
  for (double& value : u) value /= std::max(std::sqrt(squares), 1e-7);
  for (int32_t step = 0; step < by.steps; ++step) {
    std::vector<double> gram(n * n), polynomial(n * n), next(n * m);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        for (int64_t k = 0; k < m; ++k) gram[i * n + j] += at(i, k) * at(j, k);
      }
    }
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double square = 0;
        for (int64_t k = 0; k < n; ++k) square += gram[i * n + k] * gram[k * n + j];
        polynomial[i * n + j] = by.b * gram[i * n + j] + by.c * square;
      }
    }
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t k = 0; k < n; ++k) {
        for (int64_t j = 0; j < m; ++j) next[i * m + j] += polynomial[i * n + k] * at(k, j);
      }
    }
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < m; ++j) at(i, j) = by.a * at(i, j) + next[i * m + j];
    }
  }
}

}  // namespace hadal::testing
