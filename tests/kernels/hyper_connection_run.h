// A case of the hyper-connection, its run in a backend's Lab (Matrix of a number of columns, Vector, and Run, the
// kernels), and the comparison with the reference.
#pragma once

#include "gtest/gtest.h"
#include "kernels/hyper_connection.h"
#include "tests/support/finite_difference.h"
#include "tests/support/random_inputs.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {

// The reference: plain loops in double precision, forward alone. Gradients are differences of it.
struct HyperConnectionReference {
  size_t rows = 0, width = 0, residuals = 0;
  std::vector<double> x, f;                 // [rows, residuals · width], [rows, width]
  std::vector<double> weight, gates, bias;  // [m, residuals · width], [3], [m]

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

  Outputs Forward() const {
    const size_t n = residuals, all = n * width, count = n * (n + 2);
    Outputs out{std::vector<double>(rows * count), std::vector<double>(rows * width), std::vector<double>(rows * all)};
    for (size_t r = 0; r < rows; ++r) {
      double squares = 0;
      for (size_t c = 0; c < all; ++c) squares += x[r * all + c] * x[r * all + c];
      const double rstd = 1 / std::sqrt(squares / static_cast<double>(all) + 1e-6);
      double* maps = &out.maps[r * count];
      for (size_t k = 0; k < count; ++k) {
        double product = 0;
        for (size_t c = 0; c < all; ++c) product += x[r * all + c] * weight[k * all + c];
        const double h = gates[k < n ? 0 : k < 2 * n ? 1 : 2] * rstd * product + bias[k];
        maps[k] = k >= 2 * n ? h : (k < n ? 1 : 2) / (1 + std::exp(-h));
      }
      Sinkhorn(n, maps + 2 * n);
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
  HyperCase(int64_t rows, int64_t width, int64_t residuals)
      : rows(rows),
        width(width),
        residuals(residuals),
        m(residuals * (residuals + 2)),
        all(residuals * width),
        x(NormalValues(rows * all, 1)),
        f(NormalValues(rows * width, 2)),
        weight(NormalValues(m * all, 3, 0.3f)),
        gates(NormalValues(3, 4, 0.5f)),
        bias(NormalValues(m, 5, 0.7f)),
        du(NormalValues(rows * width, 6)),
        dy(NormalValues(rows * all, 7)) {}

  HyperConnectionReference Reference() const {
    return {static_cast<size_t>(rows),
            static_cast<size_t>(width),
            static_cast<size_t>(residuals),
            Widen(x),
            Widen(f),
            Widen(weight),
            Widen(gates),
            Widen(bias)};
  }
  // x̃·Wᵀ, the linear layer's.
  std::vector<float> Projected() const {
    std::vector<float> projected;
    for (int64_t i = 0; i < rows * m; ++i) {
      double sum = 0;
      for (int64_t k = 0; k < all; ++k) sum += double{x[i / m * all + k]} * weight[i % m * all + k];
      projected.push_back(static_cast<float>(sum));
    }
    return projected;
  }

  int64_t rows, width, residuals, m, all;
  std::vector<float> x, f, weight, gates, bias, du, dy;
};

struct HyperResults {
  std::vector<float> maps, u, y, dx, df, d_maps, d_gates, d_bias;
};

// Backward in place, as layers use it. Gradients of gates and bias are added to 1.
template <typename Lab>
HyperResults RunHyperConnection(Lab&& lab, const HyperCase& c) {
  const auto unset = [&](int64_t columns) { return lab.Matrix(std::vector<float>(c.rows * columns, NAN), columns); };
  auto x = lab.Matrix(c.x, c.all), f = lab.Matrix(c.f, c.width), projected = lab.Matrix(c.Projected(), c.m),
       maps = unset(c.m), u = unset(c.width), y = unset(c.all), dx = lab.Matrix(c.dy, c.all), df = unset(c.width),
       d_maps = unset(c.m), du = lab.Matrix(c.du, c.width);
  auto gates = lab.Vector(c.gates), bias = lab.Vector(c.bias), rstd = lab.Vector(std::vector<float>(c.rows, NAN)),
       d_gates = lab.Vector(std::vector<float>(3, 1.0f)), d_bias = lab.Vector(std::vector<float>(c.m, 1.0f)),
       partials = lab.Vector(std::vector<float>(HyperPartials(c.rows, c.residuals), NAN));
  lab.Run(HyperReadForwardArgs{.x = x.view(),
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
                                 .d_maps = d_maps.view()});
  lab.Run(HyperReadBackwardArgs{.du = du.view(),
                                .x = x.view(),
                                .projected = projected.view(),
                                .maps = maps.view(),
                                .rstd = rstd.view(),
                                .gates = gates.view(),
                                .bias = bias.view(),
                                .d_maps = d_maps.view(),
                                .dx = dx.view(),
                                .d_gates = d_gates.view(),
                                .d_bias = d_bias.view(),
                                .partials = partials.view()});
  EXPECT_TRUE(maps.guards_intact() && u.guards_intact() && y.guards_intact());
  EXPECT_TRUE(dx.guards_intact() && df.guards_intact() && d_maps.guards_intact());
  return {maps.dense(), u.dense(), y.dense(), dx.dense(), df.dense(), d_maps.dense(), d_gates.Read(), d_bias.Read()};
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
    for (int64_t k = 0; k < c.m; ++k) {
      sum += double{found.d_maps[i / c.all * c.m + k]} * c.weight[k * c.all + i % c.all];
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
