#include "tests/support/linear_reference.h"

namespace hadal::testing {

std::vector<double> LinearReference::Product() const {
  std::vector<double> z(rows * out);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t o = 0; o < out; ++o) {
      double sum = bias.empty() ? 0 : bias[o];
      for (int64_t i = 0; i < in; ++i) sum += x[r * in + i] * weight[o * in + i];
      z[r * out + o] = sum;
    }
  }
  return z;
}

std::vector<double> LinearReference::Forward() const {
  std::vector<double> y = Product();
  for (int64_t i = 0; i < rows * out; ++i) {
    if (relu && y[i] < 0) y[i] = 0;
    if (!factors.empty()) y[i] *= factors[i];
  }
  return y;
}

LinearReference::Gradients LinearReference::Backward(const std::vector<double>& dy) const {
  Gradients g{dy, std::vector<double>(rows * in), std::vector<double>(out * in), std::vector<double>(out)};
  const std::vector<double> z = Product();
  for (int64_t i = 0; i < rows * out; ++i) {
    if (!factors.empty()) g.d_product[i] *= factors[i];
    if (relu && z[i] <= 0) g.d_product[i] = 0;
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t o = 0; o < out; ++o) {
      const double dz = g.d_product[r * out + o];
      g.d_bias[o] += dz;
      for (int64_t i = 0; i < in; ++i) {
        g.dx[r * in + i] += dz * weight[o * in + i];
        g.d_weight[o * in + i] += dz * x[r * in + i];
      }
    }
  }
  return g;
}

}  // namespace hadal::testing
