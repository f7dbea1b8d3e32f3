#include "kernels/cuda/hyper_connection.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/hyper_connection_reference.h"
#include "tests/support/kernel_device.h"
#include "tests/support/random_inputs.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {
namespace {

struct Case {
  int64_t rows, width, residuals;
  Placement place;
};
// Up to and beyond a block of rows, a warp's columns, and half of a square.
const Case kCases[] = {{1, 1, 1, {}}, {3, 5, 2, {3, 5}}, {35, 3, 4, {}}, {2, 70, 5, {1, 2}}, {2, 9, 8, {}}};

struct Results {
  std::vector<float> maps, u, y, dx, df, d_maps, d_gates, d_bias;
};

// Gradients of gates and bias are added to 1.
struct Connection {
  explicit Connection(const Case& c)
      : c(c),
        m(c.residuals * (c.residuals + 2)),
        all(c.residuals * c.width),
        x(NormalValues(c.rows * all, 1)),
        f(NormalValues(c.rows * c.width, 2)),
        weight(NormalValues(m * all, 3, 0.3f)),
        gates(NormalValues(3, 4, 0.5f)),
        bias(NormalValues(m, 5, 0.7f)),
        du(NormalValues(c.rows * c.width, 6)),
        dy(NormalValues(c.rows * all, 7)) {}

  HyperConnectionReference Reference() const {
    return {static_cast<size_t>(c.rows),
            static_cast<size_t>(c.width),
            static_cast<size_t>(c.residuals),
            Widen(x),
            Widen(f),
            Widen(weight),
            Widen(gates),
            Widen(bias)};
  }

  // x̃·Wᵀ, the linear layer's.
  std::vector<float> Projected() const {
    std::vector<float> projected;
    for (int64_t i = 0; i < c.rows * m; ++i) {
      double sum = 0;
      for (int64_t k = 0; k < all; ++k) sum += double{x[i / m * all + k]} * weight[i % m * all + k];
      projected.push_back(static_cast<float>(sum));
    }
    return projected;
  }

  // Backward in place, as layers use it.
  Results Run(uint64_t seed) const {
    KernelDevice device(seed);
    const auto matrix = [&](const std::vector<float>& values, int64_t columns) {
      return DeviceMatrixOf<float>(device, values, c.rows, columns, c.place);
    };
    const auto empty = [&](int64_t columns) { return matrix(std::vector<float>(c.rows * columns, NAN), columns); };
    const auto residuals = matrix(x, all), result = matrix(f, c.width), projected = matrix(Projected(), m),
               maps = empty(m), u = empty(c.width), y = empty(all), dx = matrix(dy, all), df = empty(c.width),
               d_maps = empty(m), d_read = matrix(du, c.width);
    const DeviceVectorOf<float> alpha(device, gates), beta(device, bias), rstd(device, c.rows),
        d_gates(device, std::vector<float>(3, 1.0f)), d_bias(device, std::vector<float>(m, 1.0f)),
        partials(device, HyperPartials(c.rows, c.residuals));
    cuda::HyperReadForward(device.stream(), {.x = residuals.view(),
                                             .projected = projected.view(),
                                             .gates = alpha.view(),
                                             .bias = beta.view(),
                                             .maps = maps.view(),
                                             .rstd = rstd.view(),
                                             .u = u.view()});
    cuda::HyperWriteForward(device.stream(),
                            {.x = residuals.view(), .maps = maps.view(), .f = result.view(), .y = y.view()});
    cuda::HyperWriteBackward(device.stream(), {.dy = dx.view(),
                                               .x = residuals.view(),
                                               .maps = maps.view(),
                                               .f = result.view(),
                                               .dx = dx.view(),
                                               .df = df.view(),
                                               .d_maps = d_maps.view()});
    cuda::HyperReadBackward(device.stream(), {.du = d_read.view(),
                                              .x = residuals.view(),
                                              .projected = projected.view(),
                                              .maps = maps.view(),
                                              .rstd = rstd.view(),
                                              .gates = alpha.view(),
                                              .bias = beta.view(),
                                              .d_maps = d_maps.view(),
                                              .dx = dx.view(),
                                              .d_gates = d_gates.view(),
                                              .d_bias = d_bias.view(),
                                              .partials = partials.view()});
    EXPECT_TRUE(maps.guards_intact() && u.guards_intact() && y.guards_intact());
    EXPECT_TRUE(dx.guards_intact() && df.guards_intact() && d_maps.guards_intact());
    return {maps.dense(), u.dense(), y.dense(), dx.dense(), df.dense(), d_maps.dense(), d_gates.Read(), d_bias.Read()};
  }

  Case c;
  int64_t m, all;
  std::vector<float> x, f, weight, gates, bias, du, dy;
};

TEST(CudaHyperConnectionTest, MatchesTheReference) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(::testing::Message() << c.residuals << " residuals of " << c.rows << " rows of " << c.width);
    const Connection connection(c);
    HyperConnectionReference reference = connection.Reference();
    const HyperConnectionReference::Outputs expected = reference.Forward();
    Results found = connection.Run(/*seed=*/1);
    EXPECT_TRUE(NearReference(found.maps, expected.maps, 1, 60));
    EXPECT_TRUE(NearReference(found.u, expected.u, 4, 60));
    EXPECT_TRUE(NearReference(found.y, expected.y, 4, 60));
    const std::vector<double> du = Widen(connection.du), dy = Widen(connection.dy);
    // The linear layer's part.
    for (size_t i = 0; i < found.dx.size(); ++i) {
      double sum = found.dx[i];
      for (int64_t k = 0; k < connection.m; ++k) {
        sum += double{found.d_maps[i / connection.all * connection.m + k]} *
               connection.weight[k * connection.all + i % connection.all];
      }
      found.dx[i] = static_cast<float>(sum);
    }
    EXPECT_TRUE(NearInL2(found.dx, reference.Slopes(reference.x, du, dy), 3e-6));
    EXPECT_TRUE(NearInL2(found.df, reference.Slopes(reference.f, du, dy), 3e-6));
    EXPECT_TRUE(NearInL2(found.d_gates, reference.Slopes(reference.gates, du, dy, 1), 3e-6));
    EXPECT_TRUE(NearInL2(found.d_bias, reference.Slopes(reference.bias, du, dy, 1), 3e-6));
  }
}

TEST(CudaHyperConnectionTest, OrderAndPlaceChangeNoBit) {
  for (Case c : kCases) {
    const Results first = Connection(c).Run(/*seed=*/1);
    c.place = {7, 1};
    const Results other = Connection(c).Run(/*seed=*/2);
    EXPECT_TRUE(SameBits(other.y, first.y));
    EXPECT_TRUE(SameBits(other.u, first.u));
    EXPECT_TRUE(SameBits(other.dx, first.dx));
    EXPECT_TRUE(SameBits(other.d_gates, first.d_gates));
    EXPECT_TRUE(SameBits(other.d_bias, first.d_bias));
  }
}

TEST(CudaHyperConnectionTest, EndsOfAStackAreCopiesAndTheirSum) {
  for (const int64_t n : {1, 2, 3, 4, 5, 6, 7, 8}) {
    constexpr int64_t kRows = 5, kWidth = 70;
    KernelDevice device(/*seed=*/n);
    const std::vector<float> values = NormalValues(kRows * kWidth, 1), residuals = NormalValues(kRows * n * kWidth, 2);
    const DeviceMatrixOf<float> x(device, values, kRows, kWidth, {3, 5}),
        copies(device, residuals, kRows, n * kWidth, {1, 2}), all(device, residuals, kRows, n * kWidth, {1, 2}),
        sum(device, values, kRows, kWidth, {3, 5});
    cuda::CopyToResiduals(device.stream(), {.x = x.view(), .gain = 0.5f, .y = copies.view()});
    cuda::SumResiduals(device.stream(), {.x = all.view(), .gain = 0.5f, .y = sum.view()});
    std::vector<float> halves;
    std::vector<double> sums(kRows * kWidth);
    for (int64_t i = 0; i < kRows * n * kWidth; ++i) {
      const int64_t at = i / (n * kWidth) * kWidth + i % kWidth;
      halves.push_back(0.5f * values[at]);
      sums[at] += 0.5 * residuals[i];
    }
    EXPECT_TRUE(SameBits(copies.dense(), halves));
    EXPECT_TRUE(NearReference(sum.dense(), sums, 4, 4));
    EXPECT_TRUE(copies.guards_intact() && sum.guards_intact());
  }
}

}  // namespace
}  // namespace hadal::testing
