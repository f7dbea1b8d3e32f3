#include "kernels/head_scale.h"

#include "gtest/gtest.h"
#include "tests/support/each_instruction_set.h"
#include "tests/support/finite_difference.h"
#include "tests/support/head_scale_reference.h"
#include "tests/support/random_inputs.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {
namespace {

struct Case {
  Case(int64_t rows, int64_t heads, int64_t head_width) : rows(rows), width(heads * head_width), heads(heads) {
    x = NormalValues(rows * width, 1), dy = NormalValues(rows * width, 2), gain = NormalValues(heads, 3);
    reference = {rows, width, Widen(x), Widen(gain)};
  }
  int64_t rows, width, heads;
  std::vector<float> x, dy, gain;
  HeadScaleReference reference;
};

std::vector<float> Forward(const Case& c, int threads) {
  StridedMatrix x(c.x, c.rows, c.width), y(c.dy, c.rows, c.width);
  HeadScaleForward(Stream::Cpu(threads), {.x = x.view(), .gain = {c.gain.data(), c.heads}, .y = y.view()});
  EXPECT_TRUE(y.guards_intact());
  return y.dense();
}

struct Backward {
  Backward(const Case& c, int threads, bool in_place = false) : d_gain(c.gain) {
    StridedMatrix x(c.x, c.rows, c.width), dy(c.dy, c.rows, c.width), fresh(c.x, c.rows, c.width);
    StridedMatrix& to = in_place ? dy : fresh;
    std::vector<float> partials(HeadScalePartials(c.rows, c.heads), NAN);
    HeadScaleBackward(Stream::Cpu(threads), {.dy = dy.view(),
                                             .x = x.view(),
                                             .gain = {c.gain.data(), c.heads},
                                             .dx = to.view(),
                                             .d_gain = {d_gain.data(), c.heads},
                                             .partials = {partials.data(), static_cast<int64_t>(partials.size())}});
    EXPECT_TRUE(to.guards_intact());
    dx = to.dense();
  }
  std::vector<float> dx, d_gain;  // d_gain starts from the gains, to show that it is added to
};

template <typename Check>
void ForEachCase(const Check& check) {
  for (const auto& [rows, heads, head_width] :
       {std::tuple(1, 1, 1), {5, 3, 7}, {33, 4, 16}, {70, 8, 9}, {64, 1, 65}, {31, 16, 4}}) {
    SCOPED_TRACE(::testing::Message() << rows << " rows, " << heads << " heads of " << head_width);
    check(Case(rows, heads, head_width));
  }
}

TEST(HeadScaleReferenceTest, GradientsMatchFiniteDifferences) {
  Case c(3, 2, 4);
  const std::vector<double> dy = Widen(c.dy);
  const auto loss = [&] { return Dot(dy, c.reference.Forward()); };
  const HeadScaleReference::Gradients g = c.reference.Backward(dy);
  EXPECT_TRUE(IsGradient(c.reference.x, loss, g.dx));
  EXPECT_TRUE(IsGradient(c.reference.gain, loss, g.d_gain));
}

TEST(HeadScaleTest, MatchesReferenceOnAnyNumberOfThreadsAndInPlace) {
  ForEachInstructionSet([] {
    ForEachCase([](const Case& c) {
      const std::vector<float> y = Forward(c, 1);
      EXPECT_TRUE(NearReference(y, c.reference.Forward(), 4, 1));
      HeadScaleReference::Gradients g = c.reference.Backward(Widen(c.dy));
      for (int64_t h = 0; h < c.heads; ++h) g.d_gain[h] += c.gain[h];
      const Backward got(c, 1);
      EXPECT_TRUE(NearReference(got.dx, g.dx, 4, 1));
      EXPECT_TRUE(NearReference(got.d_gain, g.d_gain, 4 * std::sqrt(c.rows * c.width / c.heads), 8));
      for (const int threads : {2, 3}) {
        const Backward in_place(c, threads, /*in_place=*/true);
        EXPECT_TRUE(SameBits(Forward(c, threads), y));
        EXPECT_TRUE(SameBits(in_place.dx, got.dx));
        EXPECT_TRUE(SameBits(in_place.d_gain, got.d_gain));
      }
    });
  });
}

// What NormFormer starts from: then it is Pre-LN with its norms.
TEST(HeadScaleTest, GainsOfOneChangeNoBit) {
  ForEachCase([](Case c) {
    c.gain.assign(c.gain.size(), 1.0f);
    EXPECT_TRUE(SameBits(Forward(c, 1), c.x));
    EXPECT_TRUE(SameBits(Backward(c, 1).dx, c.dy));
  });
}

}  // namespace
}  // namespace hadal::testing
