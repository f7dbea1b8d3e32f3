// The residual connection in plain double loops: what kernels/residual_norm.h is compared with. Matrices are dense.
#pragma once

#include <cstdint>
#include <vector>

namespace hadal::testing {

struct ResidualNormReference {
  int64_t rows = 0, width = 0;
  std::vector<double> stream;   // [rows, width]
  std::vector<double> branch;   // [rows, width], or empty: s = stream
  std::vector<double> bias;     // [width], or empty
  std::vector<double> skip;     // [rows, width], or empty
  std::vector<double> factors;  // dropout factors [rows, width], or empty
  double residual_gain = 1, branch_gain = 1;
  std::vector<double> scale, shift;  // [width], or empty: no norm

  struct Output {
    std::vector<double> sum, normed, mean, rstd;
  };
  Output Forward() const;

  struct Gradients {
    std::vector<double> d_stream, d_branch, d_skip, d_bias, d_scale, d_shift;
  };
  // The gradients of Σ d_normed ⊙ n + Σ d_sum ⊙ s; an empty argument counts as zero.
  Gradients Backward(const std::vector<double>& d_normed, const std::vector<double>& d_sum) const;

 private:
  double BranchFactor(int64_t i) const { return branch_gain * (factors.empty() ? 1 : factors[i]); }
};

}  // namespace hadal::testing
