#include "kernels/hyper_connection.h"

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/linear.h"
#include "kernels/residual_norm.h"
#include "tests/support/each_instruction_set.h"
#include "tests/support/hyper_connection_reference.h"
#include "tests/support/random_inputs.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {
namespace {

// Inputs, and what the kernels make of them. Gradients are added to 1.
struct Connection {
  Connection(int64_t rows, int64_t width, int64_t n, int64_t m)
      : rows(rows),
        width(width),
        n(n),
        x(rows, n * width, 1, 1.0f),
        f(rows, width, 2, 1.0f),
        weight(m, n * width, 3, 0.3f),
        gates(1, 3, 4, 0.5f),
        bias(1, m, 5, 0.7f),
        du(rows, width, 6, 1.0f),
        dy(rows, n * width, 7, 1.0f),
        projected(rows, m),
        maps(rows, m),
        rstd(1, rows),
        u(rows, width),
        y(rows, n * width),
        dx(rows, n * width),
        df(rows, width),
        d_maps(rows, m),
        d_weight(m, n * width, 1.0f),
        d_gates(1, 3, 1.0f),
        d_bias(1, m, 1.0f),
        partials(1, HyperPartials(rows, n), NAN) {}
  Connection(int64_t rows, int64_t width, int64_t n) : Connection(rows, width, n, HyperMaps(n)) {}

  static Vector VectorOf(OwnedMatrix& m) { return {m.values.data(), m.columns}; }

  void Forward(const Stream& stream) {
    LinearForward(stream, {.x = x.view(), .weight = weight.view(), .y = projected.view()});
    HyperReadForward(stream, {.x = x.view(),
                              .projected = projected.view(),
                              .gates = VectorOf(gates),
                              .bias = VectorOf(bias),
                              .maps = maps.view(),
                              .rstd = VectorOf(rstd),
                              .u = u.view()});
    HyperWriteForward(stream, {.x = x.view(), .maps = maps.view(), .f = f.view(), .y = y.view()});
  }

  // In place, as layers use it.
  void Backward(const Stream& stream) {
    dx.values = dy.values;
    HyperWriteBackward(stream, {.dy = dx.view(),
                                .x = x.view(),
                                .maps = maps.view(),
                                .f = f.view(),
                                .dx = dx.view(),
                                .df = df.view(),
                                .d_maps = d_maps.view()});
    HyperReadBackward(stream, {.du = du.view(),
                               .x = x.view(),
                               .projected = projected.view(),
                               .maps = maps.view(),
                               .rstd = VectorOf(rstd),
                               .gates = VectorOf(gates),
                               .bias = VectorOf(bias),
                               .d_maps = d_maps.view(),
                               .dx = dx.view(),
                               .d_gates = VectorOf(d_gates),
                               .d_bias = VectorOf(d_bias),
                               .partials = VectorOf(partials)});
    LinearBackwardInput(stream, {.dy = d_maps.view(), .weight = weight.view(), .accumulate = true, .dx = dx.view()});
    LinearBackwardWeight(stream, {.dy = d_maps.view(), .x = x.view(), .d_weight = d_weight.view()});
  }

  HyperConnectionReference Reference() const {
    return {static_cast<size_t>(rows), static_cast<size_t>(width), static_cast<size_t>(n), Widen(x.values),
            Widen(f.values),           Widen(weight.values),       Widen(gates.values),    Widen(bias.values)};
  }

  int64_t rows, width, n;
  OwnedMatrix x, f, weight, gates, bias, du, dy;
  OwnedMatrix projected, maps, rstd, u, y, dx, df, d_maps, d_weight, d_gates, d_bias, partials;
};

template <typename Check>
void ForEachCase(const Check& check) {
  for (const int64_t n : {1, 2, 3, 4, 8}) {
    for (const auto& [rows, width] : {std::pair(1, 1), {5, 21}, {33, 8}, {70, 16}}) {
      SCOPED_TRACE(::testing::Message() << n << " residuals of " << rows << " rows of " << width);
      check(Connection(rows, width, n));
    }
  }
}

TEST(HyperConnectionTest, ForwardMatchesReference) {
  ForEachInstructionSet([] {
    ForEachCase([](Connection c) {
      c.Forward(Stream::Cpu(1));
      const HyperConnectionReference::Outputs expected = c.Reference().Forward();
      EXPECT_TRUE(NearReference(c.maps.values, expected.maps, 1, 40));
      EXPECT_TRUE(NearReference(c.u.values, expected.u, 4, 40));
      EXPECT_TRUE(NearReference(c.y.values, expected.y, 4, 40));
    });
  });
}

TEST(HyperConnectionTest, GradientsAreSlopesOfTheReference) {
  for (const auto& [rows, width, n] : {std::array<int64_t, 3>{1, 3, 1}, {3, 5, 2}, {2, 9, 4}, {34, 2, 3}}) {
    Connection c(rows, width, n);
    HyperConnectionReference reference = c.Reference();
    const std::vector<double> du = Widen(c.du.values), dy = Widen(c.dy.values),
                              dx = reference.Slopes(reference.x, du, dy), df = reference.Slopes(reference.f, du, dy),
                              d_weight = reference.Slopes(reference.weight, du, dy, 1),
                              d_gates = reference.Slopes(reference.gates, du, dy, 1),
                              d_bias = reference.Slopes(reference.bias, du, dy, 1);
    ForEachInstructionSet([&] {
      Connection got = c;
      got.Forward(Stream::Cpu(1));
      got.Backward(Stream::Cpu(1));
      EXPECT_TRUE(NearInL2(got.dx.values, dx, 3e-6));
      EXPECT_TRUE(NearInL2(got.df.values, df, 3e-6));
      EXPECT_TRUE(NearInL2(got.d_weight.values, d_weight, 3e-6));
      EXPECT_TRUE(NearInL2(got.d_gates.values, d_gates, 3e-6));
      EXPECT_TRUE(NearInL2(got.d_bias.values, d_bias, 3e-6));
    });
  }
}

TEST(HyperConnectionTest, ThreadsChangeNoBit) {
  ForEachCase([](const Connection& c) {
    Connection serial = c;
    serial.Forward(Stream::Cpu(1));
    serial.Backward(Stream::Cpu(1));
    for (const int threads : {2, 3}) {
      Connection parallel = c;
      parallel.Forward(Stream::Cpu(threads));
      parallel.Backward(Stream::Cpu(threads));
      EXPECT_TRUE(SameBits(parallel.y.values, serial.y.values));
      EXPECT_TRUE(SameBits(parallel.dx.values, serial.dx.values));
      EXPECT_TRUE(SameBits(parallel.d_gates.values, serial.d_gates.values));
      EXPECT_TRUE(SameBits(parallel.d_bias.values, serial.d_bias.values));
    }
  });
}

TEST(HyperConnectionTest, OtherRowsChangeNoBit) {
  ForEachInstructionSet([] {
    ForEachCase([](Connection all) {
      all.Forward(Stream::Cpu(1));
      Connection one = all;
      one.maps.values.assign(one.maps.values.size(), NAN);
      one.u.values.assign(one.u.values.size(), NAN);
      for (int64_t row = 0; row < all.rows; ++row) {
        HyperReadForward(Stream::Cpu(1), {.x = one.x.view().Rows(row, 1),
                                          .projected = one.projected.view().Rows(row, 1),
                                          .gates = Connection::VectorOf(one.gates),
                                          .bias = Connection::VectorOf(one.bias),
                                          .maps = one.maps.view().Rows(row, 1),
                                          .rstd = {one.rstd.values.data() + row, 1},
                                          .u = one.u.view().Rows(row, 1)});
      }
      EXPECT_TRUE(SameBits(one.maps.values, all.maps.values));
      EXPECT_TRUE(SameBits(one.u.values, all.u.values));
    });
  });
}

TEST(HyperConnectionTest, RowsAndColumnsOfTheResidualMapSumToOne) {
  Connection c(40, 8, 4);
  c.Forward(Stream::Cpu(1));
  for (int64_t row = 0; row < c.rows; ++row) {
    const float* map = c.maps.view().row(row) + 8;
    for (int k = 0; k < 4; ++k) {
      EXPECT_NEAR(map[4 * k] + map[4 * k + 1] + map[4 * k + 2] + map[4 * k + 3], 1, 1e-6);
      EXPECT_NEAR(map[k] + map[4 + k] + map[8 + k] + map[12 + k], 1, 1e-4);
    }
  }
}

// Closed gates and biases that make H_pre (1, 0, 0, 0), H_post likewise, and H_res 1.
TEST(HyperConnectionTest, WithFixedMapsTheFirstStreamIsThePlainResidualBitForBit) {
  Connection c(37, 21, 4);
  constexpr float kOne = 30, kZero = -110;  // of a sigmoid
  c.gates.values.assign(3, 0.0f);
  c.bias.values = {kOne, kZero, kZero, kZero, 0, kZero, kZero, kZero};
  for (int k = 0; k < 16; ++k) c.bias.values.push_back(k % 5 == 0 ? 0 : -200);
  c.Forward(Stream::Cpu(1));
  OwnedMatrix first(c.rows, c.width), sum(c.rows, c.width), first_after(c.rows, c.width);
  for (int64_t row = 0; row < c.rows; ++row) {
    for (int64_t k = 0; k < c.width; ++k) {
      first.view().row(row)[k] = c.x.view().row(row)[k];
      first_after.view().row(row)[k] = c.y.view().row(row)[k];
    }
  }
  ResidualNormForward(Stream::Cpu(1), {.residual = first.view(), .branch = c.f.view(), .sum = sum.view()});
  EXPECT_TRUE(SameBits(c.u.values, first.values));
  EXPECT_TRUE(SameBits(first_after.values, sum.values));
}

TEST(HyperConnectionTest, EndsOfAStackAreCopiesAndTheirMean) {
  for (const int threads : {1, 3}) {
    const int64_t rows = 7, width = 53;
    const OwnedMatrix x(rows, width, 1, 1.0f);
    OwnedMatrix residuals(rows, 4 * width), mean(rows, width);
    CopyToResiduals(Stream::Cpu(threads), {.x = x.view(), .y = residuals.view()});
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t k = 0; k < 4 * width; ++k) {
        ASSERT_EQ(residuals.view().row(row)[k], x.view().row(row)[k % width]) << "row " << row << ", column " << k;
      }
    }
    SumResiduals(Stream::Cpu(threads), {.x = residuals.view(), .gain = 0.25f, .y = mean.view()});
    EXPECT_TRUE(SameBits(mean.values, x.values)) << "the mean of equal residuals";
  }
}

TEST(HyperConnectionTest, SumOfStreamsAddsAll) {
  const OwnedMatrix x(1, 3, 1, 1.0f);
  OwnedMatrix y(1, 1);
  SumResiduals(Stream::Cpu(1), {.x = x.view(), .y = y.view()});
  EXPECT_FLOAT_EQ(y.values[0], x.values[0] + x.values[1] + x.values[2]);
}

}  // namespace
}  // namespace hadal::testing
