#include "kernels/shift_scale.h"

#include "gtest/gtest.h"
#include "tests/support/each_instruction_set.h"
#include "tests/support/finite_difference.h"
#include "tests/support/random_inputs.h"
#include "tests/support/shift_scale_reference.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {
namespace {

struct Case {
  Case(int64_t rows, int64_t width, bool scaled) : rows(rows), width(width), scaled(scaled) {
    x = NormalValues(rows * width, 1), dy = NormalValues(rows * width, 2);
    if (!scaled) scale = {1};
    reference = {Widen(x), Widen(shift), Widen(scale)};
  }
  ConstVector Scale() const { return scaled ? ConstVector(scale.data(), 1) : ConstVector(); }
  int64_t rows, width;
  bool scaled;
  std::vector<float> x, dy, shift = {0.3f}, scale = {-1.7f};
  ShiftScaleReference reference;
};

std::vector<float> Forward(const Case& c, int threads, bool in_place = false) {
  StridedMatrix x(c.x, c.rows, c.width), fresh(c.dy, c.rows, c.width);
  StridedMatrix& y = in_place ? x : fresh;
  ShiftScaleForward(Stream::Cpu(threads),
                    {.x = x.view(), .shift = {c.shift.data(), 1}, .scale = c.Scale(), .y = y.view()});
  EXPECT_TRUE(y.guards_intact());
  return y.dense();
}

struct Backward {
  Backward(const Case& c, int threads, bool accumulate, bool in_place = false) {
    StridedMatrix x(c.x, c.rows, c.width), dy(c.dy, c.rows, c.width), fresh(c.x, c.rows, c.width);
    StridedMatrix& to = in_place ? dy : fresh;
    std::vector<float> partials(ShiftScalePartials(c.rows), NAN);
    ShiftScaleBackward(Stream::Cpu(threads), {.dy = dy.view(),
                                              .x = c.scaled ? ConstMatrix(x.view()) : ConstMatrix(),
                                              .shift = {c.shift.data(), 1},
                                              .scale = c.Scale(),
                                              .accumulate = accumulate,
                                              .dx = to.view(),
                                              .d_shift = {d_shift.data(), 1},
                                              .d_scale = c.scaled ? Vector(d_scale.data(), 1) : Vector(),
                                              .partials = {partials.data(), static_cast<int64_t>(partials.size())}});
    EXPECT_TRUE(to.guards_intact());
    dx = to.dense();
  }
  std::vector<float> dx, d_shift = {5}, d_scale = {7};  // not zero, to show that they are added to
};

template <typename Check>
void ForEachCase(const Check& check) {
  for (const auto& [rows, width] : {std::pair(1, 1), {5, 21}, {33, 64}, {70, 72}, {64, 65}, {100, 200}}) {
    for (const bool scaled : {false, true}) {
      SCOPED_TRACE(::testing::Message() << rows << " rows of " << width << (scaled ? ", scaled" : ""));
      check(Case(rows, width, scaled));
    }
  }
}

TEST(ShiftScaleReferenceTest, GradientsMatchFiniteDifferences) {
  Case c(3, 4, true);
  const std::vector<double> dy = Widen(c.dy);
  const auto loss = [&] { return Dot(dy, c.reference.Forward()); };
  const ShiftScaleReference::Gradients g = c.reference.Backward(dy);
  EXPECT_TRUE(IsGradient(c.reference.x, loss, g.dx));
  EXPECT_TRUE(IsGradient(c.reference.shift, loss, g.d_shift));
  EXPECT_TRUE(IsGradient(c.reference.scale, loss, g.d_scale));
}

TEST(ShiftScaleTest, MatchesReference) {
  ForEachInstructionSet([] {
    ForEachCase([](const Case& c) {
      EXPECT_TRUE(NearReference(Forward(c, 1), c.reference.Forward(), 4, 2));
      ShiftScaleReference::Gradients g = c.reference.Backward(Widen(c.dy));
      g.d_shift[0] += 5;
      g.d_scale[0] += 7;
      for (const bool accumulate : {false, true}) {
        const Backward got(c, 1, accumulate);
        std::vector<double> dx = g.dx;
        for (size_t i = 0; accumulate && i < dx.size(); ++i) dx[i] += c.x[i];
        EXPECT_TRUE(NearReference(got.dx, dx, 8, 2));
        const double magnitude = 4 * std::sqrt(c.rows * c.width);
        EXPECT_TRUE(NearReference(got.d_shift, g.d_shift, magnitude, 8));
        if (c.scaled) {
          EXPECT_TRUE(NearReference(got.d_scale, g.d_scale, magnitude, 8));
        }
      }
    });
  });
}

TEST(ShiftScaleTest, ThreadsAndPlaceChangeNoBit) {
  ForEachCase([](const Case& c) {
    const Backward serial(c, 1, /*accumulate=*/false);
    for (const int threads : {2, 3}) {
      EXPECT_TRUE(SameBits(Forward(c, threads, /*in_place=*/true), Forward(c, 1)));
      const Backward in_place(c, threads, /*accumulate=*/false, /*in_place=*/true);
      EXPECT_TRUE(SameBits(in_place.dx, serial.dx));
      EXPECT_TRUE(SameBits(in_place.d_shift, serial.d_shift));
      EXPECT_TRUE(SameBits(in_place.d_scale, serial.d_scale));
    }
  });
}

}  // namespace
}  // namespace hadal::testing
