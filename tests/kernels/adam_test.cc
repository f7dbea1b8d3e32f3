#include "kernels/adam.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/adam_reference.h"
#include "tests/support/each_instruction_set.h"
#include "tests/support/random_inputs.h"

namespace hadal {
namespace {

using testing::NearReference;
using testing::NormalValues;
using testing::SameBits;

struct AdamState {
  std::vector<float> parameter, first_moment, second_moment;
};

AdamState MakeState(int64_t count) {
  AdamState state = {NormalValues(count, 1), NormalValues(count, 2, 0.1f), NormalValues(count, 3, 0.1f)};
  for (float& v : state.second_moment) v *= v;
  return state;
}

// Runs on elements [first, first + count) of the vectors.
void Step(const Stream& stream, AdamArgs args, AdamState& state, std::vector<float>& gradient, int64_t first,
          int64_t count) {
  args.parameter = {state.parameter.data() + first, count};
  args.first_moment = {state.first_moment.data() + first, count};
  args.second_moment = {state.second_moment.data() + first, count};
  args.gradient = {gradient.data() + first, count};
  AdamStep(stream, args);
}

AdamArgs TypicalArgs() {
  AdamArgs args;
  args.learning_rate = 1e-2;
  args.weight_decay = 0.05;
  args.gradient_scale = 0.7;
  args.update = 3;
  return args;
}

void ExpectReference(const AdamArgs& args, int64_t count) {
  SCOPED_TRACE(::testing::Message() << count << " elements, update " << args.update);
  AdamState state = MakeState(count);
  std::vector<float> gradient = NormalValues(count, 4, 0.3f);
  testing::AdamReferenceState reference = {{state.parameter.begin(), state.parameter.end()},
                                           {state.first_moment.begin(), state.first_moment.end()},
                                           {state.second_moment.begin(), state.second_moment.end()}};
  Step(Stream::Cpu(1), args, state, gradient, 0, count);
  testing::AdamReference(args, gradient, reference);
  EXPECT_TRUE(NearReference(state.first_moment, reference.first_moment, 0.1, 4));
  EXPECT_TRUE(NearReference(state.second_moment, reference.second_moment, 0.01, 4));
  EXPECT_TRUE(NearReference(state.parameter, reference.parameter, 1, 4));
}

TEST(AdamTest, MatchesTheReference) {
  testing::ForEachInstructionSet([] {
    for (const int64_t count : {1, 3, 15, 16, 17, 100, 5000}) ExpectReference(TypicalArgs(), count);
    AdamArgs first = TypicalArgs();
    first.update = 1;
    ExpectReference(first, 100);
    AdamArgs late = TypicalArgs();
    late.update = 100000;
    late.weight_decay = 0;
    ExpectReference(late, 100);
  });
}

// At t = 1 with zero moments the step is lr · sign(g), whatever the gradient's size.
TEST(AdamTest, FirstUpdateMovesByTheLearningRate) {
  AdamState state = {{0, 0, 0}, {0, 0, 0}, {0, 0, 0}};
  std::vector<float> gradient = {1e-3f, -5.0f, 0.0f};
  AdamArgs args;
  args.learning_rate = 0.25;
  Step(Stream::Cpu(1), args, state, gradient, 0, 3);
  EXPECT_NEAR(state.parameter[0], -0.25f, 2e-5);
  EXPECT_NEAR(state.parameter[1], 0.25f, 1e-6);
  EXPECT_EQ(state.parameter[2], 0.0f);
}

TEST(AdamTest, ThreadsAndPlacesChangeNoBit) {
  constexpr int64_t kCount = 40007;
  std::vector<float> gradient = NormalValues(kCount, 4, 0.3f);
  testing::ForEachInstructionSet([&] {
    AdamState expected = MakeState(kCount);
    Step(Stream::Cpu(1), TypicalArgs(), expected, gradient, 0, kCount);
    for (const int threads : {2, 3}) {
      AdamState state = MakeState(kCount);
      Step(Stream::Cpu(threads), TypicalArgs(), state, gradient, 0, kCount);
      EXPECT_TRUE(SameBits(state.parameter, expected.parameter));
      EXPECT_TRUE(SameBits(state.first_moment, expected.first_moment));
      EXPECT_TRUE(SameBits(state.second_moment, expected.second_moment));
    }
    AdamState pieces = MakeState(kCount);
    Step(Stream::Cpu(1), TypicalArgs(), pieces, gradient, 0, 13);
    Step(Stream::Cpu(2), TypicalArgs(), pieces, gradient, 13, kCount - 13);
    EXPECT_TRUE(SameBits(pieces.parameter, expected.parameter));
  });
}

TEST(AdamTest, LeavesTheNeighboursAlone) {
  AdamState state = MakeState(64);
  const AdamState before = state;
  std::vector<float> gradient = NormalValues(64, 4);
  Step(Stream::Cpu(1), TypicalArgs(), state, gradient, 3, 21);
  for (const int64_t i : {0, 2, 24, 63}) {
    EXPECT_EQ(state.parameter[i], before.parameter[i]);
    EXPECT_EQ(state.first_moment[i], before.first_moment[i]);
    EXPECT_EQ(state.second_moment[i], before.second_moment[i]);
  }
  EXPECT_NE(state.parameter[3], before.parameter[3]);
  EXPECT_NE(state.parameter[23], before.parameter[23]);
}

TEST(AdamDeathTest, RejectsUpdateZero) {
  AdamState state = MakeState(4);
  std::vector<float> gradient(4);
  AdamArgs args = TypicalArgs();
  args.update = 0;
  EXPECT_DEATH(Step(Stream::Cpu(1), args, state, gradient, 0, 4), "args.update >= 1");
}

}  // namespace
}  // namespace hadal
