// The reference for kernels/residual_norm.h: the residual connection by plain loops in double precision. Matrices are
// dense.
#pragma once

#include <cstdint>
#include <vector>

namespace hadal::testing {

struct ResidualNormReference {
  int64_t rows = 0, width = 0;
  std::vector<double> residual;  // [rows, width]
  std::vector<double> branch;    // [rows, width], or empty: s = residual
  std::vector<double> bias;      // [width], or empty
  std::vector<double> skip;      // [rows, width], or empty
  std::vector<double> factors;   // dropout factors [rows, width], or empty
  double residual_gain = 1, branch_gain = 1, skip_gain = 1;
  std::vector<double> learned_residual_gain;  // [width], or empty
  std::vector<double> learned_branch_gain;    // [1], or empty
  std::vector<double> scale, shift;           // [width]; no scale: no norm; no shift: 0
  bool centred = true;                        // LayerNorm; false: RMSNorm
  double epsilon = 1e-5;
  double norm_gain = 1;
  bool has_second = false;  // a second stream
  double second_gain = 1;
  std::vector<double> second;  // [rows, width], or empty: starts from second_gain · residual

  struct Output {
    std::vector<double> sum, normed, mean, rstd, second;
  };
  Output Forward() const;

  struct Gradients {
    std::vector<double> d_residual, d_branch, d_skip, d_bias, d_scale, d_shift, d_residual_gain, d_branch_gain;
  };
  // The gradients of Σ d_normed ⊙ n + Σ d_sum ⊙ s + Σ d_second ⊙ d'; an empty argument counts as zero.
  Gradients Backward(const std::vector<double>& d_normed, const std::vector<double>& d_sum,
                     const std::vector<double>& d_second = {}) const;

 private:
  double ResidualFactor(int64_t i) const {
    return residual_gain * (learned_residual_gain.empty() ? 1 : learned_residual_gain[i % width]);
  }
  double MaskFactor(int64_t i) const { return branch_gain * (factors.empty() ? 1 : factors[i]); }
  double BranchFactor(int64_t i) const {
    return MaskFactor(i) * (learned_branch_gain.empty() ? 1 : learned_branch_gain[0]);
  }
  double BranchOutput(int64_t i) const { return branch[i] + (bias.empty() ? 0 : bias[i % width]); }
};

}  // namespace hadal::testing
