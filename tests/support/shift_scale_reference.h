// The reference for kernels/shift_scale.h: plain loops in double precision.
#pragma once

#include <cstddef>
#include <vector>

namespace hadal::testing {

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

}  // namespace hadal::testing
