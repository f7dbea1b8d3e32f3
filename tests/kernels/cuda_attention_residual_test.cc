#include "kernels/cuda/operations.h"

#include <array>

#include "gtest/gtest.h"
#include "tests/kernels/attention_residual_run.h"
#include "tests/support/kernel_device.h"
#include "tests/support/random_inputs.h"

namespace hadal::testing {
namespace {

class Lab {
 public:
  explicit Lab(uint64_t seed, Placement place = {}) : place_(place), device_(seed) {}

  DeviceMatrixOf<float> Matrix(const std::vector<float>& values, int64_t columns) {
    return {device_, values, std::ssize(values) / columns, columns, place_};
  }
  DeviceVectorOf<float> Vector(const std::vector<float>& values) { return {device_, values}; }
  void Run(const ReadSourcesForwardArgs& args) { cuda::ReadSourcesForward(device_.stream(), args); }
  void Run(const ReadOpenForwardArgs& args) { cuda::ReadOpenForward(device_.stream(), args); }
  void Run(const ReadOpenBackwardArgs& args) { cuda::ReadOpenBackward(device_.stream(), args); }
  void Run(const ReadSourcesBackwardArgs& args) { cuda::ReadSourcesBackward(device_.stream(), args); }

 private:
  Placement place_;
  KernelDevice device_;
};

TEST(CudaAttentionResidualTest, MatchesTheReference) {
  for (const bool adds : {false, true}) {
    for (const auto& [rows, width, sources, readers] :
         {std::array<int64_t, 4>{1, 1, 1, 1}, {3, 5, 1, 2}, {2, 24, 4, 6}, {35, 4, 2, 2}, {1, 300, 3, 2}}) {
      SCOPED_TRACE(::testing::Message() << readers << " readers of " << sources << " sources of [" << rows << ", "
                                        << width << "]" << (adds ? ", adding" : ""));
      const AttentionResidualCase c(rows, width, sources, readers, adds, /*first_is_plain=*/sources == 1);
      ExpectReference(c, RunAttentionResidual(Lab(/*seed=*/1), c, readers));
    }
  }
}

// With more than a warp a row, and more readers than a reading of the sources has.
TEST(CudaAttentionResidualTest, NeitherPlaceNorCallsChangeABit) {
  for (const bool adds : {false, true}) {
    const AttentionResidualCase c(19, 264, 5, 6, adds, /*first_is_plain=*/true);
    const AttentionResidualResults found = RunAttentionResidual(Lab(/*seed=*/1), c, 6);
    ExpectSameBits(RunAttentionResidual(Lab(/*seed=*/2, {3, 5}), c, 6), found);
    for (const int64_t together : {1, 5}) ExpectSameBits(RunAttentionResidual(Lab(/*seed=*/3), c, together), found);
  }
}

TEST(CudaAttentionResidualTest, OneSourceIsReadAsItIs) {
  const AttentionResidualCase c(7, 21, 1, 1, /*adds=*/false, /*first_is_plain=*/false);
  EXPECT_TRUE(SameBits(RunAttentionResidual(Lab(/*seed=*/1), c, 1).h, c.x));
}

TEST(CudaAttentionResidualTest, LargeLogitsSelectASource) {
  AttentionResidualCase c(1, 2, 2, 2, /*adds=*/false, /*first_is_plain=*/false);
  c.x = {3, 0, -3, 0}, c.open = {0, 0, 0, 5}, c.query = {1e6f, 0, -1e6f, 0}, c.scale = {1, 1, 1, 1};
  EXPECT_EQ(RunAttentionResidual(Lab(/*seed=*/1), c, 2).h, (std::vector<float>{3, 0, -3, 0}));
}

}  // namespace
}  // namespace hadal::testing
