#include "tests/support/embedding_reference.h"

namespace hadal::testing {

std::vector<double> EmbeddingReference::Forward() const {
  std::vector<double> x;
  for (std::size_t n = 0; n + 1 < offsets.size(); ++n) {
    for (int32_t row = offsets[n]; row < offsets[n + 1]; ++row) {
      for (int64_t c = 0; c < width; ++c) {
        const double sum = multiplier * table[tokens[row] * width + c] + positions[(row - offsets[n]) * width + c];
        x.push_back(sum * (factors.empty() ? 1 : factors[row * width + c]));
      }
    }
  }
  return x;
}

std::vector<double> EmbeddingReference::Backward(const std::vector<double>& dx) const {
  std::vector<double> d_table(table.size());
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    for (int64_t c = 0; c < width; ++c) {
      const double factor = factors.empty() ? 1 : factors[row * width + c];
      d_table[tokens[row] * width + c] += multiplier * factor * dx[row * width + c];
    }
  }
  return d_table;
}

}  // namespace hadal::testing
