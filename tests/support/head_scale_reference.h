// The reference for kernels/head_scale.h: plain loops in double precision; dense matrices.
#pragma once

#include <cstdint>
#include <iterator>
#include <vector>

namespace hadal::testing {

struct HeadScaleReference {
  int64_t rows, width;
  std::vector<double> x, gain;

  int64_t Head(int64_t i) const { return i % width / (width / std::ssize(gain)); }
  std::vector<double> Forward() const {
    std::vector<double> y(x);
    for (int64_t i = 0; i < rows * width; ++i) y[i] *= gain[Head(i)];
    return y;
  }
  struct Gradients {
    std::vector<double> dx, d_gain;
  };
  Gradients Backward(const std::vector<double>& dy) const {
    Gradients g{dy, std::vector<double>(gain.size())};
    for (int64_t i = 0; i < rows * width; ++i) {
      g.dx[i] *= gain[Head(i)];
      g.d_gain[Head(i)] += dy[i] * x[i];
    }
    return g;
  }
};

}  // namespace hadal::testing
