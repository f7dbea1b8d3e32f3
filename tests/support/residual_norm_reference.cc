#include "tests/support/residual_norm_reference.h"

#include <cmath>

namespace hadal::testing {

ResidualNormReference::Output ResidualNormReference::Forward() const {
  Output out{residual, {}, {}, {}, {}};
  if (!branch.empty()) {
    for (int64_t i = 0; i < rows * width; ++i) {
      out.sum[i] = ResidualFactor(i) * residual[i] + BranchFactor(i) * BranchOutput(i) +
                   (skip.empty() ? 0 : skip_gain * skip[i]);
      if (!has_second) continue;
      out.second.push_back((second.empty() ? second_gain * residual[i] : second[i]) +
                           second_gain * BranchFactor(i) * BranchOutput(i));
    }
  }
  if (scale.empty()) return out;
  out.normed.resize(rows * width);
  for (int64_t r = 0; r < rows; ++r) {
    const double* s = &out.sum[r * width];
    double mean = 0, variance = 0;
    for (int64_t c = 0; centred && c < width; ++c) mean += s[c] / width;
    for (int64_t c = 0; c < width; ++c) variance += (s[c] - mean) * (s[c] - mean) / width;
    const double rstd = 1 / std::sqrt(variance + epsilon);
    for (int64_t c = 0; c < width; ++c) {
      out.normed[r * width + c] = norm_gain * (scale[c] * (s[c] - mean) * rstd + (shift.empty() ? 0 : shift[c]));
    }
    out.mean.push_back(mean);
    out.rstd.push_back(rstd);
  }
  return out;
}

ResidualNormReference::Gradients ResidualNormReference::Backward(const std::vector<double>& d_normed,
                                                                 const std::vector<double>& d_sum,
                                                                 const std::vector<double>& d_second) const {
  std::vector<double> ds = d_sum.empty() ? std::vector<double>(rows * width) : d_sum;
  Gradients g;
  if (!d_normed.empty()) {
    const Output forward = Forward();
    g.d_scale.resize(width);
    g.d_shift.resize(width);
    for (int64_t r = 0; r < rows; ++r) {
      // The full Jacobian of the normalisation, column by column (residual_norm.md).
      const double q = forward.rstd[r];
      std::vector<double> h(width);
      for (int64_t c = 0; c < width; ++c) h[c] = (forward.sum[r * width + c] - forward.mean[r]) * q;
      for (int64_t i = 0; i < width; ++i) {
        const double dn = norm_gain * d_normed[r * width + i];
        g.d_scale[i] += dn * h[i];
        g.d_shift[i] += dn;
        for (int64_t j = 0; j < width; ++j) {
          ds[r * width + j] += dn * scale[i] * q * ((i == j) - (centred ? 1.0 / width : 0) - h[i] * h[j] / width);
        }
      }
    }
  }
  g.d_skip = g.d_residual = ds;
  if (branch.empty()) return g;
  g.d_branch.resize(rows * width);
  g.d_bias.resize(width);
  g.d_residual_gain.resize(width);
  g.d_branch_gain.resize(1);
  for (int64_t i = 0; i < rows * width; ++i) {
    g.d_skip[i] = skip_gain * ds[i];
    g.d_residual[i] = ResidualFactor(i) * ds[i];
    if (has_second && second.empty()) g.d_residual[i] += second_gain * d_second[i];
    g.d_residual_gain[i % width] += residual_gain * ds[i] * residual[i];
    const double df = ds[i] + (d_second.empty() ? 0 : second_gain * d_second[i]);
    g.d_branch_gain[0] += MaskFactor(i) * df * BranchOutput(i);
    g.d_branch[i] = BranchFactor(i) * df;
    g.d_bias[i % width] += g.d_branch[i];
  }
  return g;
}

}  // namespace hadal::testing
