#include <utility>

#include "kernels/cuda/operations.h"
#include "tests/kernels/scales_and_sums_run.h"

namespace hadal::testing {
namespace {

using cuda::BFloat16;

class Lab {
 public:
  explicit Lab(uint64_t seed, Placement place = {}) : place_(place), device_(seed) {}

  template <typename T>
  DeviceMatrixOf<T> Matrix(const std::vector<float>& values, int64_t columns) {
    return {device_, values, std::ssize(values) / columns, columns, place_};
  }
  DeviceVectorOf<float> Vector(const std::vector<float>& values) { return {device_, values}; }
  void Run(const HeadNormForwardArgs& args) { cuda::HeadNormForward(device_.stream(), args); }
  void Run(const HeadNormBackwardArgs& args) { cuda::HeadNormBackward(device_.stream(), args); }
  void Run(const HeadScaleForwardArgs& args) { cuda::HeadScaleForward(device_.stream(), args); }
  void Run(const HeadScaleBackwardArgs& args) { cuda::HeadScaleBackward(device_.stream(), args); }
  void Run(const ShiftScaleForwardArgs& args) { cuda::ShiftScaleForward(device_.stream(), args); }
  void Run(const ShiftScaleBackwardArgs& args) { cuda::ShiftScaleBackward(device_.stream(), args); }
  void Run(const WeightedSumForwardArgs& args) { cuda::WeightedSumForward(device_.stream(), args); }
  void Run(const WeightedSumBackwardArgs& args) { cuda::WeightedSumBackward(device_.stream(), args); }

 private:
  Placement place_;
  KernelDevice device_;
};

template <typename Case>
void ExpectReferenceInAnyOrderAndPlace(const Case& c, std::vector<Placement> places) {
  for (const Placement& place : places) {
    Lab other(/*seed=*/2, {1, 2});
    ExpectReference(c, Lab(/*seed=*/1, place), {&other});
  }
}

template <typename Pair>
class CudaHeadScaleTest : public ::testing::Test {};
using HeadTypes = ::testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(CudaHeadScaleTest, HeadTypes);

TYPED_TEST(CudaHeadScaleTest, MatchesTheDefinitionInAnyOrderAndPlace) {
  using Case = HeadScaleCase<TypeParam, TypeParam>;
  for (const Case& c : {Case(1, 1, 1), Case(7, 3, 5), Case(40, 4, 16), Case(70, 2, 24)}) {
    ExpectReferenceInAnyOrderAndPlace(c, {{}, {3, 2}, {8, 8}});
  }
}

template <typename Type>
class CudaHeadNormTest : public ::testing::Test {};
TYPED_TEST_SUITE(CudaHeadNormTest, HeadTypes);

TYPED_TEST(CudaHeadNormTest, MatchesTheDefinitionInAnyOrderAndPlace) {
  using Case = HeadNormCase<TypeParam>;
  for (const bool centred : {false, true}) {
    for (const Case& c : {Case(centred, 1, 1, 1), Case(centred, 7, 3, 5), Case(centred, 40, 2, 24)}) {
      ExpectReferenceInAnyOrderAndPlace(c, {{}, {3, 2}, {8, 8}});
    }
  }
}

template <typename Pair>
class CudaShiftScaleTest : public ::testing::Test {};
using Pairs = ::testing::Types<std::pair<float, float>, std::pair<float, BFloat16>, std::pair<BFloat16, BFloat16>>;
TYPED_TEST_SUITE(CudaShiftScaleTest, Pairs);

TYPED_TEST(CudaShiftScaleTest, MatchesTheDefinitionInAnyOrderAndPlace) {
  using Case = ShiftScaleCase<typename TypeParam::first_type, typename TypeParam::second_type>;
  for (const auto& [rows, width] : {std::pair(1, 1), {5, 21}, {33, 64}, {70, 72}, {100, 40}}) {
    for (const bool scaled : {false, true}) {
      for (const bool accumulate : {false, true}) {
        ExpectReferenceInAnyOrderAndPlace(Case(rows, width, scaled, accumulate), {{}, {3, 5}});
      }
    }
  }
}

template <typename Pair>
class CudaWeightedSumTest : public ::testing::Test {};
TYPED_TEST_SUITE(CudaWeightedSumTest, Pairs);

TYPED_TEST(CudaWeightedSumTest, MatchesTheDefinitionInAnyOrderAndPlace) {
  using Case = WeightedSumCase<typename TypeParam::first_type, typename TypeParam::second_type>;
  for (const auto& [rows, width] : {std::pair(1, 1), {5, 21}, {33, 64}, {70, 40}}) {
    for (const int terms : {1, 2, 7}) ExpectReferenceInAnyOrderAndPlace(Case(rows, width, terms), {{}, {3, 5}});
  }
  ExpectReferenceInAnyOrderAndPlace(Case(2, 8, 300), {{}});  // more terms than a block has threads
}

// A weight of 1 among zeros picks its term.
TYPED_TEST(CudaWeightedSumTest, OneAmongZerosPicksItsTermBitForBit) {
  for (const int64_t picked : {0, 3, 6}) {
    WeightedSumCase<typename TypeParam::first_type, typename TypeParam::second_type> c(5, 24, 7);
    c.weights.assign(7, 0.0f);
    c.weights[picked] = 1;
    const auto term = c.x.begin() + picked * 5 * 24;
    EXPECT_TRUE(SameBits(c.Run(Lab(/*seed=*/1), false).y,
                         Rounded<typename TypeParam::second_type>(std::vector<float>(term, term + 5 * 24))));
  }
}

}  // namespace
}  // namespace hadal::testing
