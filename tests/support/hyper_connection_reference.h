// The reference for kernels/hyper_connection.h: plain loops in double precision, forward alone. Gradients are
// differences of it.
#pragma once

#include <cstddef>

#include "tests/support/finite_difference.h"

namespace hadal::testing {

struct HyperConnectionReference {
  size_t rows = 0, width = 0, residuals = 0;
  std::vector<double> x, f;                 // [rows, residuals · width], [rows, width]
  std::vector<double> weight, gates, bias;  // [m, residuals · width], [3], [m]

  struct Outputs {
    std::vector<double> maps, u, y;  // [rows, m], [rows, width], [rows, residuals · width]
  };

  // e^logits with columns, then rows, divided by their sums, 20 times.
  static void Sinkhorn(size_t n, double* m) {
    for (size_t i = 0; i < n * n; ++i) m[i] = std::exp(m[i]);
    for (int step = 0; step < 40; ++step) {
      const size_t between_groups = step % 2 == 0 ? 1 : n, between_elements = step % 2 == 0 ? n : 1;
      for (size_t g = 0; g < n; ++g) {
        double sum = 0;
        for (size_t k = 0; k < n; ++k) sum += m[g * between_groups + k * between_elements];
        for (size_t k = 0; k < n; ++k) m[g * between_groups + k * between_elements] /= sum;
      }
    }
  }

  Outputs Forward() const {
    const size_t n = residuals, all = n * width, count = n * (n + 2);
    Outputs out{std::vector<double>(rows * count), std::vector<double>(rows * width), std::vector<double>(rows * all)};
    for (size_t r = 0; r < rows; ++r) {
      double squares = 0;
      for (size_t c = 0; c < all; ++c) squares += x[r * all + c] * x[r * all + c];
      const double rstd = 1 / std::sqrt(squares / static_cast<double>(all) + 1e-6);
      double* maps = &out.maps[r * count];
      for (size_t k = 0; k < count; ++k) {
        double product = 0;
        for (size_t c = 0; c < all; ++c) product += x[r * all + c] * weight[k * all + c];
        const double h = gates[k < n ? 0 : k < 2 * n ? 1 : 2] * rstd * product + bias[k];
        maps[k] = k >= 2 * n ? h : (k < n ? 1 : 2) / (1 + std::exp(-h));
      }
      Sinkhorn(n, maps + 2 * n);
      for (size_t c = 0; c < width; ++c) {
        for (size_t i = 0; i < n; ++i) {
          out.u[r * width + c] += maps[i] * x[r * all + i * width + c];
          double& y = out.y[r * all + i * width + c];
          y = maps[n + i] * f[r * width + c];
          for (size_t j = 0; j < n; ++j) y += maps[2 * n + i * n + j] * x[r * all + j * width + c];
        }
      }
    }
    return out;
  }

  // The slopes of <du, u> + <dy, y> along `variable`, one of the above, plus `before`.
  std::vector<double> Slopes(std::vector<double>& variable, const std::vector<double>& du,
                             const std::vector<double>& dy, double before = 0) {
    const auto loss = [&] {
      const Outputs out = Forward();
      return Dot(du, out.u) + Dot(dy, out.y);
    };
    constexpr double kStep = 1e-5;
    std::vector<double> slopes;
    for (double& value : variable) {
      const double at = value;
      value = at + kStep;
      const double above = loss();
      value = at - kStep;
      slopes.push_back((above - loss()) / (2 * kStep) + before);
      value = at;
    }
    return slopes;
  }
};

}  // namespace hadal::testing
