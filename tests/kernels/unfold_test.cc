// With the product and the GLU that a convolution has behind it: against the formula y = glu(conv1d(x) + b), in double,
// utterance by utterance, whose gradients central differences check. So a row that crosses a border, a wrong order of
// taps and a wrong rounding of the length are seen.
#include "kernels/unfold.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/glu.h"
#include "runtime/arena.h"
#include "runtime/stream.h"
#include "tests/support/finite_difference.h"
#include "tests/support/random_inputs.h"
#include "tests/support/strided_matrix.h"
#include "tests/support/test_device.h"

namespace hadal::testing {
namespace {

constexpr int64_t kIn = 37, kOut = 6;  // kIn is more than a thread's share of columns

// dx and y of Σ dy ⊙ glu(Σ_{c, k} w[o, c, k]·x[2j + k − 2, c]).
struct Reference {
  std::vector<double> x, w, dy;
  std::vector<int32_t> offsets;

  template <typename Visit>
  void ForTerms(Visit visit) const {
    int64_t y_row = 0;
    for (size_t n = 0; n + 1 < offsets.size(); ++n) {
      for (int64_t j = 0; 2 * j < offsets[n + 1] - offsets[n]; ++j, ++y_row) {
        for (int64_t k = 0; k < 5; ++k) {
          const int64_t row = offsets[n] + 2 * j + k - 2;
          if (row < offsets[n] || row >= offsets[n + 1]) continue;
          for (int64_t o = 0; o < 2 * kOut; ++o) {
            for (int64_t c = 0; c < kIn; ++c) visit(y_row * 2 * kOut + o, row * kIn + c, (o * kIn + c) * 5 + k);
          }
        }
      }
    }
  }
  std::vector<double> Z() const {
    std::vector<double> z(2 * dy.size(), 0);
    ForTerms([&](int64_t to, int64_t from, int64_t weight) { z[to] += w[weight] * x[from]; });
    return z;
  }
  std::vector<double> Y() const {
    const std::vector<double> z = Z();
    std::vector<double> y(dy.size());
    for (size_t i = 0; i < y.size(); ++i) {
      const double* const row = z.data() + i / kOut * 2 * kOut;
      y[i] = row[i % kOut] / (1 + std::exp(-row[kOut + i % kOut]));
    }
    return y;
  }
  std::vector<double> Dz() const {
    std::vector<double> dz = Z();
    for (size_t i = 0; i < dy.size(); ++i) {
      double* const row = dz.data() + i / kOut * 2 * kOut;
      const double gate = 1 / (1 + std::exp(-row[kOut + i % kOut]));
      row[kOut + i % kOut] = dy[i] * row[i % kOut] * gate * (1 - gate);
      row[i % kOut] = dy[i] * gate;
    }
    return dz;
  }
  std::vector<double> Dx() const {
    const std::vector<double> dz = Dz();
    std::vector<double> dx(x.size(), 0);
    ForTerms([&](int64_t to, int64_t from, int64_t weight) { dx[from] += w[weight] * dz[to]; });
    return dx;
  }
};

class UnfoldTest : public ::testing::Test {
 protected:
  UnfoldTest() {
    int32_t rows = 0;
    for (const int32_t length : {1, 2, 3, 4, 5, 9, 16}) {
      x_offsets_.push_back(rows += length);
      u_offsets_.push_back(u_offsets_.back() + (length + 1) / 2);
    }
    x_ = NormalValues(rows * kIn, 1), w_ = NormalValues(2 * kOut * kIn * 5, 2), dy_ = NormalValues(Rows() * kOut, 3);
    for (float& w : w_) w *= 0.2f;
    reference_ = {Widen(x_), Widen(w_), Widen(dy_), x_offsets_};
  }
  int64_t Rows() const { return u_offsets_.back(); }
  ConstTokens XOffsets() const { return {x_offsets_.data(), std::ssize(x_offsets_)}; }
  ConstTokens UOffsets() const { return {u_offsets_.data(), std::ssize(u_offsets_)}; }
  ConstMatrix X() const { return {x_.data(), x_offsets_.back(), kIn}; }

  // y, dz and dx, in blocks of `block` rows.
  std::vector<std::vector<float>> Run(int threads, int64_t block) const {
    const Stream stream = Stream::Cpu(threads);
    std::vector<float> y(Rows() * kOut), z(Rows() * 2 * kOut, 0.0f), dx(x_.size(), 0.0f);
    for (int64_t first = 0; first < Rows(); first += block) {
      const int64_t rows = std::min(block, Rows() - first);
      std::vector<float> u(rows * kIn * 5, NAN);
      Unfold(
          stream,
          {.x = X(), .x_offsets = XOffsets(), .u_offsets = UOffsets(), .first = first, .u = {u.data(), rows, kIn * 5}});
      for (int64_t i = 0; i < rows * 2 * kOut; ++i) {
        for (int64_t c = 0; c < kIn * 5; ++c) {
          z[first * 2 * kOut + i] += u[i / (2 * kOut) * kIn * 5 + c] * w_[i % (2 * kOut) * kIn * 5 + c];
        }
      }
    }
    GluForward(stream, {.z = ConstMatrix(z.data(), Rows(), 2 * kOut), .y = {y.data(), Rows(), kOut}});
    GluBackward(stream, {.dy = ConstMatrix(dy_.data(), Rows(), kOut), .z = {z.data(), Rows(), 2 * kOut}});
    for (int64_t first = 0; first < Rows(); first += block) {
      const int64_t rows = std::min(block, Rows() - first);
      std::vector<float> du(rows * kIn * 5, 0.0f);
      for (int64_t i = 0; i < rows * 2 * kOut; ++i) {
        for (int64_t c = 0; c < kIn * 5; ++c) {
          du[i / (2 * kOut) * kIn * 5 + c] += z[first * 2 * kOut + i] * w_[i % (2 * kOut) * kIn * 5 + c];
        }
      }
      Fold(stream, {.du = ConstMatrix(du.data(), rows, kIn * 5),
                    .x_offsets = XOffsets(),
                    .u_offsets = UOffsets(),
                    .first = first,
                    .dx = {dx.data(), x_offsets_.back(), kIn}});
    }
    return {y, z, dx};
  }

  // u of x and dx of a du, in blocks of `block` rows.
  std::vector<std::vector<float>> UnfoldAndFold(const Stream& stream, int64_t block) const {
    const std::vector<float> gradient = NormalValues(Rows() * kIn * 5, 4);
    ArenaLayout layout;
    const auto reserve = [&](const std::vector<float>& v) { return layout.Reserve<float>("rows", std::ssize(v)); };
    const ArenaSlice x_slice = reserve(x_), dx_slice = reserve(x_), u_slice = reserve(gradient),
                     du_slice = reserve(gradient);
    const Arena arena = *Arena::Allocate(layout, stream.device());
    const Matrix x(arena.Get<float>(x_slice), x_offsets_.back(), kIn), dx(arena.Get<float>(dx_slice), x.rows, kIn),
        u(arena.Get<float>(u_slice), Rows(), kIn * 5), du(arena.Get<float>(du_slice), Rows(), kIn * 5);
    stream.FromHost(x.data, x_.data(), x_slice.bytes);
    stream.FromHost(du.data, gradient.data(), du_slice.bytes);
    for (int64_t first = 0; first < Rows(); first += block) {
      const int64_t rows = std::min(block, Rows() - first);
      Unfold(stream,
             {.x = x, .x_offsets = XOffsets(), .u_offsets = UOffsets(), .first = first, .u = u.Rows(first, rows)});
      Fold(stream,
           {.du = du.Rows(first, rows), .x_offsets = XOffsets(), .u_offsets = UOffsets(), .first = first, .dx = dx});
    }
    return {HostValues(stream, u), HostValues(stream, dx)};
  }

  std::vector<int32_t> x_offsets_ = {0}, u_offsets_ = {0};
  std::vector<float> x_, w_, dy_;
  Reference reference_;
};

void ExpectNear(const std::vector<float>& values, const std::vector<double>& expected) {
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(values[i], expected[i], 2e-5 * (1 + std::abs(expected[i]))) << i;
}

TEST_F(UnfoldTest, IsTheConvolutionAndItsGradients) {
  const auto results = Run(1, Rows());
  ExpectNear(results[0], reference_.Y());
  ExpectNear(results[1], reference_.Dz());
  ExpectNear(results[2], reference_.Dx());
}

TEST_F(UnfoldTest, ReferenceHasTheSlopesOfItsLoss) {
  const std::vector<double> dx = reference_.Dx();
  EXPECT_TRUE(IsGradient(
      reference_.x, [&] { return Dot(reference_.Y(), reference_.dy); }, dx));
}

TEST_F(UnfoldTest, ThreadsAndBlocksChangeNoBit) {
  const auto expected = Run(1, Rows());
  EXPECT_EQ(Run(3, Rows()), expected);
  EXPECT_EQ(Run(2, 7), expected);
}

// In blocks: a device finds the taps of all rows in one list.
TEST_F(UnfoldTest, ADeviceHasTheBitsOfTheCpu) {
  const std::unique_ptr<Device> device = MakeTestDevice(/*seed=*/1);
  EXPECT_EQ(UnfoldAndFold(Stream::On(*device, 1), 7), UnfoldAndFold(Stream::Cpu(1), Rows()));
}

TEST(Glu, GatesThatAreFarFromZeroAreShutOrOpen) {
  std::vector<float> z = {3, 4, -1e4f, 1e4f}, y(2), dy = {1, 1};
  GluForward(Stream::Cpu(1), {.z = ConstMatrix(z.data(), 1, 4), .y = {y.data(), 1, 2}});
  EXPECT_EQ(y, (std::vector<float>{0, 4}));
  GluBackward(Stream::Cpu(1), {.dy = ConstMatrix(dy.data(), 1, 2), .z = {z.data(), 1, 4}});
  EXPECT_EQ(z, (std::vector<float>{0, 1, 0, 0}));
}

}  // namespace
}  // namespace hadal::testing
