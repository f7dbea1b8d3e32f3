// The reference for kernels/embedding.h: token embedding by plain loops in double precision. Matrices are dense.
#pragma once

#include <cstdint>
#include <vector>

namespace hadal::testing {

struct EmbeddingReference {
  int64_t width = 0;
  std::vector<int32_t> tokens;    // [rows]
  std::vector<int32_t> offsets;   // [sentences + 1]
  std::vector<double> table;      // [vocabulary, width]
  std::vector<double> positions;  // [longest sentence, width]
  std::vector<double> factors;    // dropout factors [rows, width], or empty
  double multiplier = 1;

  std::vector<double> Forward() const;
  // d (Σ dx ⊙ x) / d table
  std::vector<double> Backward(const std::vector<double>& dx) const;
};

}  // namespace hadal::testing
