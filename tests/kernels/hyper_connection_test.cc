#include "kernels/hyper_connection.h"

#include "gtest/gtest.h"
#include "kernels/residual_norm.h"
#include "runtime/stream.h"
#include "tests/kernels/hyper_connection_run.h"
#include "tests/support/each_instruction_set.h"
#include "tests/support/random_inputs.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {
namespace {

// Dense matrices.
struct Lab {
  StridedMatrix Matrix(const std::vector<float>& values, int64_t columns) const {
    return {values, std::ssize(values) / columns, columns, 0, 0};
  }
  HostVector Vector(const std::vector<float>& values) const { return {values}; }
  void Run(const HyperReadForwardArgs& args) const { HyperReadForward(Stream::Cpu(threads), args); }
  void Run(const HyperWriteForwardArgs& args) const { HyperWriteForward(Stream::Cpu(threads), args); }
  void Run(const HyperWriteBackwardArgs& args) const { HyperWriteBackward(Stream::Cpu(threads), args); }
  void Run(const HyperReadBackwardArgs& args) const { HyperReadBackward(Stream::Cpu(threads), args); }

  int threads = 1;
};

constexpr HyperMixing kMixings[] = {HyperMixing::kSinkhorn, HyperMixing::kPermutations};

template <typename Check>
void ForEachCase(const Check& check) {
  for (const HyperMixing mixing : kMixings) {
    for (const int64_t n : {1, 2, 3, 4, 8}) {
      if (n > MostResiduals(mixing)) continue;
      for (const auto& [rows, width] : {std::pair(1, 1), {5, 21}, {33, 8}, {70, 16}}) {
        SCOPED_TRACE(::testing::Message() << n << " residuals of " << rows << " rows of " << width);
        check(HyperCase(rows, width, n, mixing));
      }
    }
  }
}

TEST(HyperConnectionTest, ForwardMatchesReference) {
  ForEachInstructionSet(
      [] { ForEachCase([](const HyperCase& c) { ExpectReferenceForward(c, RunHyperConnection(Lab(), c)); }); });
}

TEST(HyperConnectionTest, GradientsAreSlopesOfTheReference) {
  ForEachInstructionSet([] {
    for (const HyperMixing mixing : kMixings) {
      for (const auto& [rows, width, n] : {std::array<int64_t, 3>{1, 3, 1}, {3, 5, 2}, {2, 9, 4}, {34, 2, 3}}) {
        const HyperCase c(rows, width, n, mixing);
        ExpectReferenceSlopes(c, RunHyperConnection(Lab(), c));
      }
    }
  });
}

TEST(HyperConnectionTest, ThreadsChangeNoBit) {
  ForEachCase([](const HyperCase& c) {
    const HyperResults serial = RunHyperConnection(Lab(), c);
    for (const int threads : {2, 3}) ExpectSameBits(RunHyperConnection(Lab{threads}, c), serial);
  });
}

TEST(HyperConnectionTest, OtherRowsChangeNoBit) {
  ForEachInstructionSet([] {
    ForEachCase([](const HyperCase& c) {
      const HyperResults all = RunHyperConnection(Lab(), c);
      for (int64_t row = 0; row < c.rows; ++row) {
        const auto of_row = [row](const std::vector<float>& values, int64_t columns) {
          return std::vector<float>(values.begin() + row * columns, values.begin() + (row + 1) * columns);
        };
        HyperCase alone = c;
        alone.rows = 1, alone.x = of_row(c.x, c.all), alone.f = of_row(c.f, c.width);
        alone.du = of_row(c.du, c.width), alone.dy = of_row(c.dy, c.all);
        const HyperResults one = RunHyperConnection(Lab(), alone);
        EXPECT_TRUE(SameBits(one.maps, of_row(all.maps, c.m)));
        EXPECT_TRUE(SameBits(one.u, of_row(all.u, c.width)));
      }
    });
  });
}

TEST(HyperConnectionTest, RowsAndColumnsOfTheResidualMapSumToOne) {
  for (const HyperMixing mixing : kMixings) {
    HyperCase c(40, 8, 4, mixing);
    if (mixing == HyperMixing::kPermutations) c.gates[2] = 30;  // Sinkhorn's columns would be off by more than 0.1
    const HyperResults found = RunHyperConnection(Lab(), c);
    for (int64_t row = 0; row < c.rows; ++row) {
      const float* map = found.maps.data() + row * c.m + 8;
      for (int k = 0; k < 4; ++k) {
        EXPECT_NEAR(map[4 * k] + map[4 * k + 1] + map[4 * k + 2] + map[4 * k + 3], 1, 1e-6);
        EXPECT_NEAR(map[k] + map[4 + k] + map[8 + k] + map[12 + k], 1,
                    mixing == HyperMixing::kPermutations ? 1e-6 : 1e-4);
      }
    }
  }
}

// Closed gates and biases that make H_pre (1, 0, 0, 0), H_post likewise, and H_res 1.
void ExpectPlainResidual(HyperMixing mixing) {
  HyperCase c(37, 21, 4, mixing);
  constexpr float kOne = 30, kZero = -110;                         // of a sigmoid
  const int64_t step = mixing == HyperMixing::kSinkhorn ? 5 : 24;  // from a logit of H_res = 1 to the next
  c.gates.assign(3, 0.0f);
  c.bias = {kOne, kZero, kZero, kZero, 0, kZero, kZero, kZero};
  for (int64_t k = 0; k < c.logits - 8; ++k) c.bias.push_back(k % step == 0 ? 0 : -200);
  const HyperResults found = RunHyperConnection(Lab(), c);
  StridedMatrix x(c.x, c.rows, c.all, 0, 0), y(found.y, c.rows, c.all, 0, 0), f(c.f, c.rows, c.width);
  OwnedMatrix first(c.rows, c.width), sum(c.rows, c.width), first_after(c.rows, c.width);
  for (int64_t row = 0; row < c.rows; ++row) {
    std::copy_n(x.view().row(row), c.width, first.view().row(row));
    std::copy_n(y.view().row(row), c.width, first_after.view().row(row));
  }
  ResidualNormForward(Stream::Cpu(1), {.residual = first.view(), .branch = f.view(), .sum = sum.view()});
  EXPECT_TRUE(SameBits(found.u, first.values));
  EXPECT_TRUE(SameBits(first_after.values, sum.values));
}
TEST(HyperConnectionTest, WithFixedMapsTheFirstStreamIsThePlainResidualBitForBit) {
  for (const HyperMixing mixing : kMixings) ExpectPlainResidual(mixing);
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

TEST(HyperConnectionTest, ARowOfZerosIsReadAsZeros) {
  const OwnedMatrix x(1, 6, 0.0f), projected(1, 8, 0.0f);
  OwnedMatrix maps(1, 8), u(1, 3, 1.0f);
  const std::vector<float> zeros(8, 0.0f);
  float rstd = 0;
  HyperReadForward(Stream::Cpu(1), {.x = x.view(),
                                    .projected = projected.view(),
                                    .gates = {zeros.data(), 3},
                                    .bias = {zeros.data(), 8},
                                    .maps = maps.view(),
                                    .rstd = {&rstd, 1},
                                    .u = u.view()});
  EXPECT_FLOAT_EQ(rstd, 1e3f) << "1 / sqrt(epsilon)";
  EXPECT_EQ(u.values, std::vector<float>(3, 0.0f));
}

TEST(HyperConnectionTest, SumOfStreamsAddsAll) {
  const OwnedMatrix x(1, 3, 1, 1.0f);
  OwnedMatrix y(1, 1);
  SumResiduals(Stream::Cpu(1), {.x = x.view(), .y = y.view()});
  EXPECT_FLOAT_EQ(y.values[0], x.values[0] + x.values[1] + x.values[2]);
}

}  // namespace
}  // namespace hadal::testing
