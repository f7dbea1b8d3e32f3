// Unfold, fold and GLU by their definitions (kernels/unfold.h, kernels/activation.h).
#pragma once

#include <cmath>
#include <vector>

#include "kernels/unfold.h"

namespace hadal::testing {

// Utterances of each length that may be an exception.
struct Utterances {
  Utterances() {
    for (const int32_t length : {1, 2, 3, 4, 5, 9, 16}) {
      x_offsets.push_back(x_offsets.back() + length);
      u_offsets.push_back(u_offsets.back() + (length + 1) / 2);
    }
  }
  // Calls visit(row of u, tap, row of x) in ascending order; no utterance's taps reach another.
  template <typename Visit>
  void ForTaps(Visit visit) const {
    for (size_t n = 0; n + 1 < x_offsets.size(); ++n) {
      for (int64_t j = 0; j < u_offsets[n + 1] - u_offsets[n]; ++j) {
        for (int64_t k = 0; k < kConvolutionTaps; ++k) {
          const int64_t x = x_offsets[n] + 2 * j + k - 2;
          if (x >= x_offsets[n] && x < x_offsets[n + 1]) visit(u_offsets[n] + j, k, x);
        }
      }
    }
  }
  // u [rows, width · taps] of x; rows behind the utterances' are 0.
  std::vector<float> Unfolded(const std::vector<float>& x, int64_t rows, int64_t width) const {
    std::vector<float> u(rows * width * kConvolutionTaps, 0.0f);
    ForTaps([&](int64_t row, int64_t k, int64_t from) {
      for (int64_t c = 0; c < width; ++c) u[(row * width + c) * kConvolutionTaps + k] = x[from * width + c];
    });
    return u;
  }
  // dx with the gradients of u added to it.
  std::vector<float> Folded(const std::vector<float>& du, int64_t width, std::vector<float> dx) const {
    ForTaps([&](int64_t row, int64_t k, int64_t to) {
      for (int64_t c = 0; c < width; ++c) dx[to * width + c] += du[(row * width + c) * kConvolutionTaps + k];
    });
    return dx;
  }

  std::vector<int32_t> x_offsets = {0}, u_offsets = {0};
};

struct GluResults {
  std::vector<double> y, dz;
};
// Of z [rows, 2 · width] and dy [rows, width].
inline GluResults GluDefinition(const std::vector<double>& z, const std::vector<float>& dy, int64_t width) {
  GluResults results{{}, std::vector<double>(z.size())};
  for (int64_t i = 0; i < std::ssize(dy); ++i) {
    const int64_t at = i / width * 2 * width + i % width;
    const double gate = 1 / (1 + std::exp(-z[at + width]));
    results.y.push_back(z[at] * gate);
    results.dz[at] = dy[i] * gate;
    results.dz[at + width] = dy[i] * z[at] * gate * (1 - gate);
  }
  return results;
}

}  // namespace hadal::testing
