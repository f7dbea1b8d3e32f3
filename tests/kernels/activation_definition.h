// The activation of a feed-forward sublayer in double, and the cases of its tests on the CPU and the device.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "gtest/gtest.h"
#include "kernels/activation.h"
#include "runtime/random.h"
#include "tests/support/random_inputs.h"

namespace hadal::testing {

inline double Act(Activation activation, double t) {
  switch (activation) {
    case Activation::kRelu:
      return std::max(0.0, t);
    case Activation::kGelu:
      return t * std::erfc(-t / std::numbers::sqrt2) / 2;
    case Activation::kGeluTanh:
      return t / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (t + 0.044715 * t * t * t)));
    case Activation::kSilu:
      return t / (1 + std::exp(-t));
  }
  return 0;
}
inline double Slope(Activation activation, double t) {
  switch (activation) {
    case Activation::kRelu:
      return t > 0 ? 1 : 0;
    case Activation::kGelu:
      return std::erfc(-t / std::numbers::sqrt2) / 2 + t * std::exp(-t * t / 2) / std::sqrt(2 * std::numbers::pi);
    case Activation::kGeluTanh: {
      const double c = std::sqrt(2 / std::numbers::pi), h = std::tanh(c * (t + 0.044715 * t * t * t));
      return (1 + h) / 2 + t / 2 * (1 - h * h) * c * (1 + 3 * 0.044715 * t * t);
    }
    case Activation::kSilu: {
      const double s = 1 / (1 + std::exp(-t));
      return s + t * s * (1 - s);
    }
  }
  return 0;
}

struct ActivationCase {
  Activation activation;
  bool gated, dropped;
  int64_t rows, width;

  int64_t columns() const { return (gated ? 2 : 1) * width; }
  Dropout dropout() const {
    return {{.seed = 7, .step = 2, .micro_batch = 1, .sublayer = 3}, dropped ? Dropout::Threshold(0.25) : 0};
  }
  // Wide enough for tails.
  std::vector<float> Z() const {
    std::vector<float> z = NormalValues(rows * columns(), 1);
    for (float& t : z) t *= 3;
    return z;
  }
  std::vector<float> DY() const { return NormalValues(rows * width, 2); }
};

struct ActivationResults {
  std::vector<double> y, dz;
};
inline ActivationResults ActivationDefinition(const ActivationCase& c, const std::vector<double>& z,
                                              const std::vector<double>& dy) {
  ActivationResults results{{}, std::vector<double>(z.size())};
  for (int64_t i = 0; i < c.rows * c.width; ++i) {
    const int64_t at = i / c.width * c.columns() + i % c.width;
    const double factor = c.dropped ? DropoutFactor(c.dropout(), i) : 1, linear = c.gated ? z[at + c.width] : 1;
    results.y.push_back(factor * Act(c.activation, z[at]) * linear);
    results.dz[at] = factor * dy[i] * linear * Slope(c.activation, z[at]);
    if (c.gated) results.dz[at + c.width] = factor * dy[i] * Act(c.activation, z[at]);
  }
  return results;
}

template <typename Check>
void ForEachActivationCase(const Check& check) {
  for (const Activation activation : {Activation::kRelu, Activation::kGelu, Activation::kGeluTanh, Activation::kSilu}) {
    for (const bool gated : {false, true}) {
      for (const auto& [rows, width] : {std::pair<int64_t, int64_t>(1, 1), {7, 37}, {5, 64}, {2, 1100}}) {
        const ActivationCase c{activation, gated, rows != 5, rows, width};
        SCOPED_TRACE(::testing::Message() << "activation " << static_cast<int>(activation) << ", gated " << gated
                                          << ", " << rows << " x " << width);
        check(c);
      }
    }
  }
}

}  // namespace hadal::testing
