#include "kernels/attention_residual.h"

#include <array>

#include "gtest/gtest.h"
#include "kernels/weighted_sum.h"
#include "runtime/stream.h"
#include "tests/kernels/attention_residual_run.h"
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
  void Run(const ReadSourcesForwardArgs& args) const { ReadSourcesForward(Stream::Cpu(threads), args); }
  void Run(const ReadOpenForwardArgs& args) const { ReadOpenForward(Stream::Cpu(threads), args); }
  void Run(const ReadOpenBackwardArgs& args) const { ReadOpenBackward(Stream::Cpu(threads), args); }
  void Run(const ReadSourcesBackwardArgs& args) const { ReadSourcesBackward(Stream::Cpu(threads), args); }

  int threads = 1;
};

TEST(AttentionResidualTest, MatchesTheReference) {
  ForEachInstructionSet([] {
    for (const bool adds : {false, true}) {
      for (const auto& [rows, width, sources, readers] :
           {std::array<int64_t, 4>{1, 1, 1, 1}, {3, 5, 1, 2}, {2, 21, 4, 3}, {35, 4, 2, 2}, {1, 70, 3, 2}}) {
        SCOPED_TRACE(::testing::Message() << readers << " readers of " << sources << " sources of [" << rows << ", "
                                          << width << "]" << (adds ? ", adding" : ""));
        const AttentionResidualCase c(rows, width, sources, readers, adds, /*first_is_plain=*/sources == 1);
        ExpectReference(c, RunAttentionResidual(Lab(), c, readers));
      }
    }
  });
}

TEST(AttentionResidualTest, NeitherThreadsNorCallsChangeABit) {
  for (const bool adds : {false, true}) {
    const AttentionResidualCase c(70, 21, 5, 4, adds, /*first_is_plain=*/false);
    const AttentionResidualResults serial = RunAttentionResidual(Lab(), c, 4);
    for (const int threads : {2, 3}) ExpectSameBits(RunAttentionResidual(Lab{threads}, c, 4), serial);
    for (const int64_t together : {1, 3}) ExpectSameBits(RunAttentionResidual(Lab(), c, together), serial);
  }
}

// Whatever w is: the softmax of one logit is 1.
TEST(AttentionResidualTest, OneSourceIsReadAsItIs) {
  const AttentionResidualCase c(7, 21, 1, 1, /*adds=*/false, /*first_is_plain=*/false);
  EXPECT_TRUE(SameBits(RunAttentionResidual(Lab(), c, 1).h, c.x));
}

// At w = 0 it is DLCL's average.
TEST(AttentionResidualTest, StartsAsTheAverageOfTheSources) {
  AttentionResidualCase c(5, 21, 6, 1, /*adds=*/false, /*first_is_plain=*/false);
  c.query.assign(c.query.size(), 0);
  const StridedMatrix x(c.x, 6 * 5, 21, 0, 0);
  const std::vector<float> weights(6, 1.0f / 6);
  OwnedMatrix average(5, 21);
  WeightedSumForward(Stream::Cpu(1),
                     {.x = StridedMatrix(x).view(), .weights = {weights.data(), 6}, .y = average.view()});
  EXPECT_TRUE(SameBits(RunAttentionResidual(Lab(), c, 1).h, average.values));
}

// The size of a logit has no limit: the largest is subtracted.
TEST(AttentionResidualTest, LargeLogitsSelectASource) {
  AttentionResidualCase c(1, 2, 2, 2, /*adds=*/false, /*first_is_plain=*/false);
  c.x = {3, 0, -3, 0}, c.open = {0, 0, 0, 5}, c.query = {1e6f, 0, -1e6f, 0}, c.scale = {1, 1, 1, 1};
  EXPECT_EQ(RunAttentionResidual(Lab(), c, 2).h, (std::vector<float>{3, 0, -3, 0}));
}

}  // namespace
}  // namespace hadal::testing
