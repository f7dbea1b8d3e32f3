#include "tests/kernels/adam_conformance.h"

#include <cmath>

#include "tests/support/random_inputs.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {
namespace {

// One Adam step in double precision: the textbook form with bias-corrected moments (Kingma & Ba 2015, algorithm 1),
// with the epsilon of the efficient form (added before the correction of the second moment).
struct AdamReferenceState {
  std::vector<double> parameter, first_moment, second_moment;
};
// Reads only the scalars of `args`.
void AdamReference(const AdamArgs& args, const std::vector<float>& gradient, AdamReferenceState& state) {
  const double root2 = std::sqrt(1 - std::pow(args.beta2, args.update));
  for (size_t i = 0; i < gradient.size(); ++i) {
    const double g = args.gradient_scale * gradient[i];
    double& p = state.parameter[i];
    double& m = state.first_moment[i];
    double& v = state.second_moment[i];
    m = args.beta1 * m + (1 - args.beta1) * g;
    v = args.beta2 * v + (1 - args.beta2) * g * g;
    const double corrected_m = m / (1 - std::pow(args.beta1, args.update));
    const double corrected_root_v = std::sqrt(v) / root2;
    p *= 1 - args.learning_rate * args.weight_decay;
    p -= args.learning_rate * corrected_m / (corrected_root_v + args.epsilon / root2);
  }
}

void ExpectSameBits(const AdamState& a, const AdamState& b) {
  EXPECT_TRUE(SameBits(a.parameter, b.parameter));
  EXPECT_TRUE(SameBits(a.first_moment, b.first_moment));
  EXPECT_TRUE(SameBits(a.second_moment, b.second_moment));
}

// Elements [first, last) of a state.
AdamState Slice(const AdamState& state, int64_t first, int64_t last) {
  const auto slice = [&](const std::vector<float>& v) { return std::vector(v.begin() + first, v.begin() + last); };
  return {slice(state.parameter), slice(state.first_moment), slice(state.second_moment)};
}

}  // namespace

AdamState MakeAdamState(int64_t count) {
  AdamState state = {NormalValues(count, 1), NormalValues(count, 2, 0.1f), NormalValues(count, 3, 0.1f)};
  for (float& v : state.second_moment) v *= v;
  return state;
}

std::vector<float> MakeAdamGradient(int64_t count) { return NormalValues(count, 4, 0.3f); }

AdamArgs TypicalAdamArgs() {
  AdamArgs args;
  args.learning_rate = 1e-2;
  args.weight_decay = 0.05;
  args.gradient_scale = 0.7;
  args.update = 3;
  return args;
}

void AdamConformance::ExpectReference(const AdamArgs& scalars, int64_t count) {
  SCOPED_TRACE(::testing::Message() << count << " elements, update " << scalars.update);
  const AdamState before = MakeAdamState(count);
  const std::vector<float> gradient = MakeAdamGradient(count);
  AdamReferenceState reference = {Widen(before.parameter), Widen(before.first_moment), Widen(before.second_moment)};
  AdamReference(scalars, gradient, reference);
  const AdamState after = Step(scalars, before, gradient);
  EXPECT_TRUE(NearReference(after.first_moment, reference.first_moment, 0.1, 4));
  EXPECT_TRUE(NearReference(after.second_moment, reference.second_moment, 0.01, 4));
  EXPECT_TRUE(NearReference(after.parameter, reference.parameter, 1, 4));
}

// Counts around vectors, and around what a device's thread (8) and block (2,048) take.
TEST_P(AdamConformance, MatchesTheReference) {
  for (const int64_t count : {1, 3, 7, 8, 9, 15, 16, 17, 100, 256, 2047, 2049, 5000}) {
    ExpectReference(TypicalAdamArgs(), count);
  }
  AdamArgs first = TypicalAdamArgs();
  first.update = 1;
  ExpectReference(first, 100);
  AdamArgs late = TypicalAdamArgs();
  late.update = 100000;
  late.weight_decay = 0;
  ExpectReference(late, 100);
}

// At t = 1 with zero moments the step is lr · sign(g), whatever the gradient's size.
TEST_P(AdamConformance, FirstUpdateMovesByTheLearningRate) {
  AdamArgs args;
  args.learning_rate = 0.25;
  const AdamState after = Step(args, {{0, 0, 0}, {0, 0, 0}, {0, 0, 0}}, {1e-3f, -5.0f, 0.0f});
  EXPECT_NEAR(after.parameter[0], -0.25f, 2e-5);
  EXPECT_NEAR(after.parameter[1], 0.25f, 1e-6);
  EXPECT_EQ(after.parameter[2], 0.0f);
}

TEST_P(AdamConformance, NoVariationChangesABit) {
  for (const int64_t count : {5, 21, 3001, 40007}) {
    SCOPED_TRACE(count);
    const AdamState before = MakeAdamState(count);
    const std::vector<float> gradient = MakeAdamGradient(count);
    const AdamState expected = Step(TypicalAdamArgs(), before, gradient);
    for (int variation = 1; variation < GetParam().variations; ++variation) {
      SCOPED_TRACE(variation);
      ExpectSameBits(Step(TypicalAdamArgs(), before, gradient, variation), expected);
    }
  }
}

// What lets replicas own slices.
TEST_P(AdamConformance, ASliceAloneHasTheSameBits) {
  constexpr int64_t kCount = 40007, kCut = 13;
  const AdamState before = MakeAdamState(kCount);
  const std::vector<float> gradient = MakeAdamGradient(kCount);
  const AdamState whole = Step(TypicalAdamArgs(), before, gradient);
  const auto alone = [&](int64_t first, int64_t last, int variation) {
    const std::vector<float> of_slice(gradient.begin() + first, gradient.begin() + last);
    return Step(TypicalAdamArgs(), Slice(before, first, last), of_slice, variation);
  };
  ExpectSameBits(alone(0, kCut, 0), Slice(whole, 0, kCut));
  ExpectSameBits(alone(kCut, kCount, GetParam().variations - 1), Slice(whole, kCut, kCount));
}

}  // namespace hadal::testing
