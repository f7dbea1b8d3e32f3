// A case of the hyper-connection, its run in a backend's Lab (Matrix of a number of columns, Vector, and Run, the
// kernels), and the comparison with the reference.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/hyper_connection.h"
#include "tests/support/finite_difference.h"
#include "tests/support/random_inputs.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {

// The reference: plain loops in double precision, forward alone. Gradients are differences of it.
struct HyperConnectionReference {
  size_t rows = 0, width = 0, residuals = 0;
  HyperMixing mixing = HyperMixing::kSinkhorn;
  std::vector<double> x, f;                 // [rows, residuals · width], [rows, width]
  std::vector<double> weight, gates, bias;  // [l, residuals · width], [3], [l]

  struct Outputs {
    std::vector<double> maps, u, y;  // [rows, m], [rows, width], [rows, residuals · width]
  };

  // e^logits with columns, then rows, divided by their sums, 20 times.
  static void Sinkhorn(size_t n, double* m) {
    for (size_t i = 0; i < n * n; ++i) m[i] = std::exp(m[i]);
    for (int step = 0; step < 40; ++step) {
      const size_t between_groups = step % 2 == 0 ? 1 : n, between_elements = step % 2 == 0 ? n : 1;
      for (size_t g = 0; g < n; ++g) {
        double sum = 0;
        for (size_t k = 0; k < n; ++k) sum += m[g * between_groups + k * between_elements];
        for (size_t k = 0; k < n; ++k) m[g * between_groups + k * between_elements] /= sum;
      }
    }
  }

  // The mean of the permutation matrices with weights softmax(logits + (8, 0, …)).
  static std::vector<double> MeanOfPermutations(size_t n, std::vector<double> logits) {
    std::vector<size_t> permutation(n);
    std::iota(permutation.begin(), permutation.end(), 0);
    logits[0] += 8;
    double sum = 0;
    for (double& logit : logits) sum += logit = std::exp(logit);
    std::vector<double> mean(n * n);
    for (const double weight : logits) {
      for (size_t i = 0; i < n; ++i) mean[i * n + permutation[i]] += weight / sum;
      std::ranges::next_permutation(permutation);
    }
    return mean;
  }

  Outputs Forward() const {
    const size_t n = residuals, all = n * width, count = n * (n + 2), logits = bias.size();
    Outputs out{std::vector<double>(rows * count), std::vector<double>(rows * width), std::vector<double>(rows * all)};
    for (size_t r = 0; r < rows; ++r) {
      double squares = 0;
      for (size_t c = 0; c < all; ++c) squares += x[r * all + c] * x[r * all + c];
      const double rstd = 1 / std::sqrt(squares / static_cast<double>(all) + 1e-6);
      double* maps = &out.maps[r * count];
      std::vector<double> square;
      for (size_t k = 0; k < logits; ++k) {
        double product = 0;
        for (size_t c = 0; c < all; ++c) product += x[r * all + c] * weight[k * all + c];
        const double h = gates[k < n ? 0 : k < 2 * n ? 1 : 2] * rstd * product + bias[k];
        if (k >= 2 * n) square.push_back(h);
        if (k < 2 * n) maps[k] = (k < n ? 1 : 2) / (1 + std::exp(-h));
      }
      if (mixing == HyperMixing::kSinkhorn) Sinkhorn(n, square.data());
      if (mixing == HyperMixing::kPermutations) square = MeanOfPermutations(n, square);
      std::ranges::copy(square, maps + 2 * n);
      for (size_t c = 0; c < width; ++c) {
        for (size_t i = 0; i < n; ++i) {
          out.u[r * width + c] += maps[i] * x[r * all + i * width + c];
          double& y = out.y[r * all + i * width + c];
          y = maps[n + i] * f[r * width + c];
          for (size_t j = 0; j < n; ++j) y += maps[2 * n + i * n + j] * x[r * all + j * width + c];
        }
      }
    }
    return out;
  }

  // The slopes of <du, u> + <dy, y> along `variable`, one of the above, plus `before`.
  std::vector<double> Slopes(std::vector<double>& variable, const std::vector<double>& du,
                             const std::vector<double>& dy, double before = 0) {
    const auto loss = [&] {
      const Outputs out = Forward();
      return Dot(du, out.u) + Dot(dy, out.y);
    };
    constexpr double kStep = 1e-5;
    std::vector<double> slopes;
    for (double& value : variable) {
      const double at = value;
      value = at + kStep;
      const double above = loss();
      value = at - kStep;
      slopes.push_back((above - loss()) / (2 * kStep) + before);
      value = at;
    }
    return slopes;
  }
};

struct HyperCase {
  HyperCase(int64_t rows, int64_t width, int64_t residuals, HyperMixing mixing = HyperMixing::kSinkhorn)
      : rows(rows),
        width(width),
        residuals(residuals),
        mixing(mixing),
        m(residuals * (residuals + 2)),
        logits(HyperLogits(mixing, residuals)),
        all(residuals * width),
        x(NormalValues(rows * all, 1)),
        f(NormalValues(rows * width, 2)),
        weight(NormalValues(logits * all, 3, 0.3f)),
        gates(NormalValues(3, 4, 0.5f)),
        bias(NormalValues(logits, 5, 0.7f)),
        du(NormalValues(rows * width, 6)),
        dy(NormalValues(rows * all, 7)) {
    if (mixing == HyperMixing::kPermutations) bias[2 * residuals] -= kIdentityLogit;  // so that no weight is small
  }

  HyperConnectionReference Reference() const {
    return {static_cast<size_t>(rows),
            static_cast<size_t>(width),
            static_cast<size_t>(residuals),
            mixing,
            Widen(x),
            Widen(f),
            Widen(weight),
            Widen(gates),
            Widen(bias)};
  }
  // x̃·Wᵀ, the linear layer's.
  std::vector<float> Projected() const {
    std::vector<float> projected;
    for (int64_t i = 0; i < rows * logits; ++i) {
      double sum = 0;
      for (int64_t k = 0; k < all; ++k) sum += double{x[i / logits * all + k]} * weight[i % logits * all + k];
      projected.push_back(static_cast<float>(sum));
    }
    return projected;
  }

  int64_t rows, width, residuals;
  HyperMixing mixing;
  int64_t m, logits, all;
  std::vector<float> x, f, weight, gates, bias, du, dy;
};

struct HyperResults {
  std::vector<float> maps, u, y, dx, df, d_projected, d_gates, d_bias;
};

// Backward in place, as layers use it. Gradients of gates and bias are added to 1.
template <typename Lab>
HyperResults RunHyperConnection(Lab&& lab, const HyperCase& c) {
  const auto unset = [&](int64_t columns) { return lab.Matrix(std::vector<float>(c.rows * columns, NAN), columns); };
  const int64_t first = c.mixing == HyperMixing::kSinkhorn ? 0 : c.m, widest = first + c.logits;
  auto x = lab.Matrix(c.x, c.all), f = lab.Matrix(c.f, c.width), projected = lab.Matrix(c.Projected(), c.logits),
       maps = unset(c.m), u = unset(c.width), y = unset(c.all), dx = lab.Matrix(c.dy, c.all), df = unset(c.width),
       gradients = unset(widest), du = lab.Matrix(c.du, c.width);
  const Matrix d_maps = gradients.view().Columns(0, c.m), d_projected = gradients.view().Columns(first, c.logits);
  auto gates = lab.Vector(c.gates), bias = lab.Vector(c.bias), rstd = lab.Vector(std::vector<float>(c.rows, NAN)),
       d_gates = lab.Vector(std::vector<float>(3, 1.0f)), d_bias = lab.Vector(std::vector<float>(c.logits, 1.0f)),
       partials = lab.Vector(std::vector<float>(HyperPartials(c.rows, c.logits), NAN));
  lab.Run(HyperReadForwardArgs{.x = x.view(),
                               .mixing = c.mixing,
                               .projected = projected.view(),
                               .gates = gates.view(),
                               .bias = bias.view(),
                               .maps = maps.view(),
                               .rstd = rstd.view(),
                               .u = u.view()});
  lab.Run(HyperWriteForwardArgs{.x = x.view(), .maps = maps.view(), .f = f.view(), .y = y.view()});
  lab.Run(HyperWriteBackwardArgs{.dy = dx.view(),
                                 .x = x.view(),
                                 .maps = maps.view(),
                                 .f = f.view(),
                                 .dx = dx.view(),
                                 .df = df.view(),
                                 .d_maps = d_maps});
  lab.Run(HyperReadBackwardArgs{.du = du.view(),
                                .x = x.view(),
                                .mixing = c.mixing,
                                .projected = projected.view(),
                                .maps = maps.view(),
                                .rstd = rstd.view(),
                                .gates = gates.view(),
                                .bias = bias.view(),
                                .d_maps = d_maps,
                                .d_projected = d_projected,
                                .dx = dx.view(),
                                .d_gates = d_gates.view(),
                                .d_bias = d_bias.view(),
                                .partials = partials.view()});
  EXPECT_TRUE(maps.guards_intact() && u.guards_intact() && y.guards_intact());
  EXPECT_TRUE(dx.guards_intact() && df.guards_intact() && gradients.guards_intact());
  std::vector<float> of_projected;
  for (int64_t i = 0; i < c.rows * c.logits; ++i) {
    of_projected.push_back(gradients.dense()[i / c.logits * widest + first + i % c.logits]);
  }
  return {maps.dense(), u.dense(), y.dense(), dx.dense(), df.dense(), of_projected, d_gates.Read(), d_bias.Read()};
}

inline void ExpectReferenceForward(const HyperCase& c, const HyperResults& found) {
  const HyperConnectionReference::Outputs expected = c.Reference().Forward();
  EXPECT_TRUE(NearReference(found.maps, expected.maps, 1, 60));
  EXPECT_TRUE(NearReference(found.u, expected.u, 4, 60));
  EXPECT_TRUE(NearReference(found.y, expected.y, 4, 60));
}

// The gradients are slopes of the reference; dx with the part that the linear layer adds.
inline void ExpectReferenceSlopes(const HyperCase& c, const HyperResults& found) {
  HyperConnectionReference reference = c.Reference();
  const std::vector<double> du = Widen(c.du), dy = Widen(c.dy);
  std::vector<float> dx = found.dx;
  for (size_t i = 0; i < dx.size(); ++i) {
    double sum = dx[i];
    for (int64_t k = 0; k < c.logits; ++k) {
      sum += double{found.d_projected[i / c.all * c.logits + k]} * c.weight[k * c.all + i % c.all];
    }
    dx[i] = static_cast<float>(sum);
  }
  EXPECT_TRUE(NearInL2(dx, reference.Slopes(reference.x, du, dy), 3e-6));
  EXPECT_TRUE(NearInL2(found.df, reference.Slopes(reference.f, du, dy), 3e-6));
  EXPECT_TRUE(NearInL2(found.d_gates, reference.Slopes(reference.gates, du, dy, 1), 3e-6));
  EXPECT_TRUE(NearInL2(found.d_bias, reference.Slopes(reference.bias, du, dy, 1), 3e-6));
}

inline void ExpectSameBits(const HyperResults& a, const HyperResults& b) {
  EXPECT_TRUE(SameBits(a.maps, b.maps));
  EXPECT_TRUE(SameBits(a.y, b.y));
  EXPECT_TRUE(SameBits(a.u, b.u));
  EXPECT_TRUE(SameBits(a.dx, b.dx));
  EXPECT_TRUE(SameBits(a.d_gates, b.d_gates));
  EXPECT_TRUE(SameBits(a.d_bias, b.d_bias));
}

}  // namespace hadal::testing
