#include "kernels/cuda/operations.h"

#include "gtest/gtest.h"
#include "tests/kernels/hyper_connection_run.h"
#include "tests/support/kernel_device.h"
#include "tests/support/random_inputs.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {
namespace {

struct Case {
  int64_t rows, width, residuals;
  Placement place;
  HyperMixing mixing = HyperMixing::kSinkhorn;
};
// Up to and beyond a block of rows, a warp's columns, and half of a square.
constexpr HyperMixing kPermutations = HyperMixing::kPermutations;
const Case kCases[] = {{1, 1, 1, {}},
                       {3, 5, 2, {3, 5}},
                       {35, 3, 4, {}},
                       {2, 70, 5, {1, 2}},
                       {2, 9, 8, {}},
                       {1, 1, 1, {}, kPermutations},
                       {3, 5, 2, {3, 5}, kPermutations},
                       {2, 9, 3, {}, kPermutations},
                       {35, 3, 4, {1, 2}, kPermutations}};

class Lab {
 public:
  Lab(const Case& c, uint64_t seed) : rows_(c.rows), place_(c.place), device_(seed) {}

  DeviceMatrixOf<float> Matrix(const std::vector<float>& values, int64_t columns) {
    return {device_, values, rows_, columns, place_};
  }
  DeviceVectorOf<float> Vector(const std::vector<float>& values) { return {device_, values}; }
  void Run(const HyperReadForwardArgs& args) { cuda::HyperReadForward(device_.stream(), args); }
  void Run(const HyperWriteForwardArgs& args) { cuda::HyperWriteForward(device_.stream(), args); }
  void Run(const HyperWriteBackwardArgs& args) { cuda::HyperWriteBackward(device_.stream(), args); }
  void Run(const HyperReadBackwardArgs& args) { cuda::HyperReadBackward(device_.stream(), args); }

 private:
  int64_t rows_;
  Placement place_;
  KernelDevice device_;
};

TEST(CudaHyperConnectionTest, MatchesTheReferenceInAnyOrderAndPlace) {
  for (Case c : kCases) {
    SCOPED_TRACE(::testing::Message() << c.residuals << " residuals of " << c.rows << " rows of " << c.width);
    const HyperCase inputs(c.rows, c.width, c.residuals, c.mixing);
    const HyperResults found = RunHyperConnection(Lab(c, /*seed=*/1), inputs);
    ExpectReferenceForward(inputs, found);
    ExpectReferenceSlopes(inputs, found);
    c.place = {7, 1};
    ExpectSameBits(RunHyperConnection(Lab(c, /*seed=*/2), inputs), found);
  }
}

TEST(CudaHyperConnectionTest, EndsOfAStackAreCopiesAndTheirSum) {
  for (const int64_t n : {1, 2, 3, 4, 5, 6, 7, 8}) {
    constexpr int64_t kRows = 5, kWidth = 70;
    KernelDevice device(/*seed=*/n);
    const std::vector<float> values = NormalValues(kRows * kWidth, 1), residuals = NormalValues(kRows * n * kWidth, 2);
    const DeviceMatrixOf<float> x(device, values, kRows, kWidth, {3, 5}),
        copies(device, residuals, kRows, n * kWidth, {1, 2}), all(device, residuals, kRows, n * kWidth, {1, 2}),
        sum(device, values, kRows, kWidth, {3, 5});
    cuda::CopyToResiduals(device.stream(), {.x = x.view(), .gain = 0.5f, .y = copies.view()});
    cuda::SumResiduals(device.stream(), {.x = all.view(), .gain = 0.5f, .y = sum.view()});
    std::vector<float> halves;
    std::vector<double> sums(kRows * kWidth);
    for (int64_t i = 0; i < kRows * n * kWidth; ++i) {
      const int64_t at = i / (n * kWidth) * kWidth + i % kWidth;
      halves.push_back(0.5f * values[at]);
      sums[at] += 0.5 * residuals[i];
    }
    EXPECT_TRUE(SameBits(copies.dense(), halves));
    EXPECT_TRUE(NearReference(sum.dense(), sums, 4, 4));
    EXPECT_TRUE(copies.guards_intact() && sum.guards_intact());
  }
}

}  // namespace
}  // namespace hadal::testing
