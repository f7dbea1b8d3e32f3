// The reference for kernels/linear.h: linear layers by plain loops in double precision.
// Matrices are dense and row-major; `factors` are dropout factors [rows, out], empty for none.
#pragma once

#include <cstdint>
#include <vector>

namespace hadal::testing {

struct LinearReference {
  int64_t rows = 0, in = 0, out = 0;
  std::vector<double> x;       // [rows, in]
  std::vector<double> weight;  // [out, in]
  std::vector<double> bias;    // [out], or empty
  bool relu = false;
  std::vector<double> factors;  // [rows, out], or empty

  // y = factors ⊙ relu(x·Wᵀ + b)  [rows, out]
  std::vector<double> Forward() const;

  struct Gradients {
    std::vector<double> d_product;  // [rows, out] at the product's output, after the backward of dropout and ReLU
    std::vector<double> dx;         // [rows, in]
    std::vector<double> d_weight;   // [out, in]
    std::vector<double> d_bias;     // [out]
  };
  // The gradients of Σ dy ⊙ y.
  Gradients Backward(const std::vector<double>& dy) const;

 private:
  std::vector<double> Product() const;
};

}  // namespace hadal::testing
