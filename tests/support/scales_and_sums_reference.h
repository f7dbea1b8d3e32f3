// The references for kernels/head_scale.h, shift_scale.h and weighted_sum.h: plain loops in double precision; dense
// matrices.
#pragma once

#include <cstdint>
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

struct ShiftScaleReference {
  std::vector<double> x, shift, scale;

  std::vector<double> Forward() const {
    std::vector<double> y(x);
    for (double& value : y) value = scale[0] * (value - shift[0]);
    return y;
  }
  struct Gradients {
    std::vector<double> dx, d_shift, d_scale;
  };
  Gradients Backward(const std::vector<double>& dy) const {
    Gradients g{dy, {0}, {0}};
    for (size_t i = 0; i < dy.size(); ++i) {
      g.dx[i] *= scale[0];
      g.d_shift[0] -= scale[0] * dy[i];
      g.d_scale[0] += dy[i] * (x[i] - shift[0]);
    }
    return g;
  }
};

// `size` elements per term.
struct WeightedSumReference {
  std::vector<double> x, weights;
  size_t size = 0;

  std::vector<double> Forward() const {
    std::vector<double> y(size, 0);
    for (size_t k = 0; k < weights.size(); ++k) {
      for (size_t i = 0; i < size; ++i) y[i] += weights[k] * x[k * size + i];
    }
    return y;
  }
  struct Gradients {
    std::vector<double> dx, d_weights;
  };
  Gradients Backward(const std::vector<double>& dy) const {
    Gradients g{std::vector<double>(x.size()), std::vector<double>(weights.size(), 0)};
    for (size_t k = 0; k < weights.size(); ++k) {
      for (size_t i = 0; i < size; ++i) {
        g.dx[k * size + i] = weights[k] * dy[i];
        g.d_weights[k] += dy[i] * x[k * size + i];
      }
    }
    return g;
  }
};

}  // namespace hadal::testing
