// Against their definitions; a device has the same bits.
#include "kernels/unfold.h"

#include "gtest/gtest.h"
#include "kernels/activation.h"
#include "runtime/arena.h"
#include "runtime/stream.h"
#include "tests/kernels/unfold_definition.h"
#include "tests/support/each_instruction_set.h"
#include "tests/support/finite_difference.h"
#include "tests/support/random_inputs.h"
#include "tests/support/strided_matrix.h"
#include "tests/support/test_device.h"

namespace hadal::testing {
namespace {

constexpr int64_t kIn = 37;  // more than a thread's share of columns

ConstTokens View(const std::vector<int32_t>& offsets) { return {offsets.data(), std::ssize(offsets)}; }

class UnfoldTest : public ::testing::Test {
 protected:
  int64_t Rows() const { return utterances_.u_offsets.back(); }

  // u of x and dx of a du, in blocks of `block` rows.
  std::vector<std::vector<float>> UnfoldAndFold(const Stream& stream, int64_t block) const {
    ArenaLayout layout;
    const auto reserve = [&](const std::vector<float>& v) { return layout.Reserve<float>("rows", std::ssize(v)); };
    const ArenaSlice x_slice = reserve(x_), dx_slice = reserve(x_), u_slice = reserve(du_), du_slice = reserve(du_);
    const Arena arena = *Arena::Allocate(layout, stream.device());
    const Matrix x(arena.Get<float>(x_slice), utterances_.x_offsets.back(), kIn),
        dx(arena.Get<float>(dx_slice), x.rows, kIn), u(arena.Get<float>(u_slice), Rows(), kIn * kConvolutionTaps),
        du(arena.Get<float>(du_slice), Rows(), kIn * kConvolutionTaps);
    stream.FromHost(x.data, x_.data(), x_slice.bytes);
    stream.FromHost(du.data, du_.data(), du_slice.bytes);
    for (int64_t first = 0; first < Rows(); first += block) {
      const int64_t rows = std::min(block, Rows() - first);
      Unfold(stream, {.x = x,
                      .x_offsets = View(utterances_.x_offsets),
                      .u_offsets = View(utterances_.u_offsets),
                      .first = first,
                      .u = u.Rows(first, rows)});
      Fold(stream, {.du = du.Rows(first, rows),
                    .x_offsets = View(utterances_.x_offsets),
                    .u_offsets = View(utterances_.u_offsets),
                    .first = first,
                    .dx = dx});
    }
    return {HostValues(stream, u), HostValues(stream, dx)};
  }

  const Utterances utterances_;
  const std::vector<float> x_ = NormalValues(utterances_.x_offsets.back() * kIn, 1);
  const std::vector<float> du_ = NormalValues(Rows() * kIn * kConvolutionTaps, 4);
};

TEST_F(UnfoldTest, HasTheBitsOfTheDefinitionForEveryThreadCountAndBlock) {
  const std::vector<std::vector<float>> expected = {utterances_.Unfolded(x_, Rows(), kIn),
                                                    utterances_.Folded(du_, kIn, std::vector<float>(x_.size()))};
  EXPECT_EQ(UnfoldAndFold(Stream::Cpu(1), Rows()), expected);
  EXPECT_EQ(UnfoldAndFold(Stream::Cpu(3), Rows()), expected);
  EXPECT_EQ(UnfoldAndFold(Stream::Cpu(2), 7), expected);
}

// Unfold is linear: its gradient is the transposed map.
TEST_F(UnfoldTest, FoldIsTheGradientOfUnfold) {
  const std::vector<double> u = Widen(utterances_.Unfolded(x_, Rows(), kIn)),
                            dx = Widen(utterances_.Folded(du_, kIn, std::vector<float>(x_.size())));
  EXPECT_NEAR(Dot(u, Widen(du_)), Dot(Widen(x_), dx), 1e-3);
}

// In blocks: a device finds the taps of all rows in one list.
TEST_F(UnfoldTest, ADeviceHasTheBitsOfTheCpu) {
  const std::unique_ptr<Device> device = MakeTestDevice(/*seed=*/1);
  EXPECT_EQ(UnfoldAndFold(Stream::On(*device, 1), 7), UnfoldAndFold(Stream::Cpu(1), Rows()));
}

// Forward, and backward in place, of a value and a gate side by side.
void GluOfHalves(const Stream& stream, Matrix z, ConstMatrix dy, Matrix y) {
  const AnyMatrix value = z.Columns(0, y.columns), gate = z.Columns(y.columns, y.columns);
  GluForward(stream, {.value = value, .gate = gate, .y = y});
  GluBackward(stream, {.dy = dy, .value = value, .gate = gate, .d_value = value, .d_gate = gate});
}

TEST(Glu, MatchesTheDefinitionOnEachInstructionSetAndAnyNumberOfThreads) {
  constexpr int64_t kRows = 23, kWidth = 37;  // vectors and a part of one
  const std::vector<float> z = NormalValues(kRows * 2 * kWidth, 1), dy = NormalValues(kRows * kWidth, 2);
  std::vector<double> variable = Widen(z);
  const GluResults expected = GluDefinition(variable, dy, kWidth);
  EXPECT_TRUE(IsGradient(
      variable, [&] { return Dot(GluDefinition(variable, dy, kWidth).y, Widen(dy)); }, expected.dz));
  ForEachInstructionSet([&] {
    std::vector<float> serial;
    for (const int threads : {1, 3}) {
      std::vector<float> y(dy.size()), dz = z;
      GluOfHalves(Stream::Cpu(threads), {dz.data(), kRows, 2 * kWidth}, {dy.data(), kRows, kWidth},
                  {y.data(), kRows, kWidth});
      EXPECT_TRUE(NearReference(y, expected.y, 1, 8));
      EXPECT_TRUE(NearReference(dz, expected.dz, 8, 8));
      dz.insert(dz.end(), y.begin(), y.end());
      if (threads == 1) serial = dz;
      EXPECT_EQ(dz, serial) << "threads change bits";
    }
  });
}

TEST(Glu, GatesThatAreFarFromZeroAreShutOrOpen) {
  std::vector<float> z = {3, 4, -1e4f, 1e4f}, y(2), dy = {1, 1};
  GluOfHalves(Stream::Cpu(1), {z.data(), 1, 4}, {dy.data(), 1, 2}, {y.data(), 1, 2});
  EXPECT_EQ(y, (std::vector<float>{0, 4}));
  EXPECT_EQ(z, (std::vector<float>{0, 1, 0, 0}));
}

}  // namespace
}  // namespace hadal::testing
