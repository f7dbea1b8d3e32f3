// The kernels of speech's front end against their definitions: unfold and fold bit for bit, as the CPU's.
#include "kernels/cuda/unfold.h"

#include <algorithm>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gtest/gtest.h"
#include "kernels/cuda/operations.h"
#include "tests/kernels/unfold_definition.h"
#include "tests/support/kernel_device.h"
#include "tests/support/random_inputs.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {
namespace {

using cuda::BFloat16;

constexpr int64_t kPaddingRows = 3;

// 37 and 300 columns: not of eights, and more than a block's.
struct Case {
  int64_t width, block;
  Placement place;
};
const Case kCases[] = {{1, 100, {}}, {37, 7, {3, 5}}, {80, 100, {}}, {300, 5, {1, 2}}, {256, 6, {8, 8}}};

template <typename Pair>
class CudaUnfoldTest : public ::testing::Test {
 protected:
  using X = typename Pair::first_type;
  using U = typename Pair::second_type;

  int64_t Rows() const { return utterances_.u_offsets.back() + kPaddingRows; }

  // u and, from du, dx, in blocks of rows.
  std::pair<std::vector<float>, std::vector<float>> Run(const Case& c, uint64_t seed) const {
    KernelDevice device(seed);
    const std::vector<float> x = NormalValues(utterances_.x_offsets.back() * c.width, 1),
                             du = NormalValues(Rows() * kConvolutionTaps * c.width, 2),
                             before = NormalValues(utterances_.x_offsets.back() * c.width, 3);
    std::vector<cuda::RowTaps> host_taps = cuda::TapsOfRows(utterances_.x_offsets, utterances_.u_offsets);
    host_taps.resize(Rows());
    const DeviceVectorOf<cuda::RowTaps> taps(device, host_taps);
    const DeviceMatrixOf<X> in(device, x, utterances_.x_offsets.back(), c.width, c.place);
    const DeviceMatrixOf<U> out(device, std::vector<float>(du.size(), NAN), Rows(), kConvolutionTaps * c.width,
                                c.place),
        gradient(device, du, Rows(), kConvolutionTaps * c.width, c.place);
    const DeviceMatrixOf<float> to(device, before, utterances_.x_offsets.back(), c.width, c.place);
    for (int64_t first = 0; first < Rows(); first += c.block) {
      const int64_t rows = std::min(c.block, Rows() - first);
      const DeviceTaps device_taps = {taps.data(), Rows()};
      cuda::Unfold(device.stream(),
                   {.x = in.view(), .first = first, .device_taps = device_taps, .u = out.view().Rows(first, rows)});
      cuda::Fold(
          device.stream(),
          {.du = gradient.view().Rows(first, rows), .first = first, .device_taps = device_taps, .dx = to.view()});
    }
    EXPECT_TRUE(out.guards_intact() && to.guards_intact());
    return {out.dense(), to.dense()};
  }

  std::pair<std::vector<float>, std::vector<float>> Expected(const Case& c) const {
    const std::vector<float> x = Rounded<X>(NormalValues(utterances_.x_offsets.back() * c.width, 1)),
                             du = Rounded<U>(NormalValues(Rows() * kConvolutionTaps * c.width, 2));
    return {Rounded<U>(utterances_.Unfolded(x, Rows(), c.width)),
            utterances_.Folded(du, c.width, NormalValues(x.size(), 3))};
  }

  Utterances utterances_;
};
using StoredTypes =
    ::testing::Types<std::pair<float, float>, std::pair<float, BFloat16>, std::pair<BFloat16, BFloat16>>;
TYPED_TEST_SUITE(CudaUnfoldTest, StoredTypes);

TYPED_TEST(CudaUnfoldTest, HasTheBitsOfTheDefinition) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(::testing::Message() << c.width << " columns, blocks of " << c.block);
    const auto expected = this->Expected(c), results = this->Run(c, /*seed=*/c.width);
    EXPECT_TRUE(SameBits(results.first, expected.first));
    EXPECT_TRUE(SameBits(results.second, expected.second));
  }
}

template <typename Pair>
class CudaGluTest : public ::testing::Test {};
using GluTypes = ::testing::Types<std::pair<float, float>, std::pair<BFloat16, BFloat16>, std::pair<BFloat16, float>>;
TYPED_TEST_SUITE(CudaGluTest, GluTypes);

template <typename T>
constexpr double kRoundoff = std::is_same_v<T, float> ? 0 : kBFloat16Roundoff;

TYPED_TEST(CudaGluTest, MatchesTheDefinition) {
  using Z = typename TypeParam::first_type;
  using Y = typename TypeParam::second_type;
  for (const auto& [rows, width, place] :
       {std::tuple<int64_t, int64_t, Placement>(1, 1, {}), {5, 21, {3, 5}}, {33, 64, {}}, {9, 40, {1, 2}}}) {
    KernelDevice device(/*seed=*/1);
    std::vector<float> z = Rounded<Z>(NormalValues(rows * 2 * width, 1, 3.0f));
    const std::vector<float> dy = Rounded<Y>(NormalValues(rows * width, 2));
    z[width] = -1e4f, z[2 * width - 1] = 1e4f;  // gates that are shut and open; of one column: open
    z = Rounded<Z>(z);
    const DeviceMatrixOf<Z> in(device, z, rows, 2 * width, place);
    const DeviceMatrixOf<Y> out(device, std::vector<float>(rows * width, NAN), rows, width, place);
    const DeviceMatrixOf<Y> gradient(device, dy, rows, width, place);
    const AnyMatrix both = in.view(), value = both.Columns(0, width), gate = both.Columns(width, width);
    cuda::GluForward(device.stream(), {.value = value, .gate = gate, .y = out.view()});
    cuda::GluBackward(device.stream(),
                      {.dy = gradient.view(), .value = value, .gate = gate, .d_value = value, .d_gate = gate});
    const GluResults expected = GluDefinition(Widen(z), dy, width);
    EXPECT_TRUE(NearReference(out.dense(), expected.y, 1, 8, kRoundoff<Y>));
    EXPECT_TRUE(NearReference(in.dense(), expected.dz, 8, 8, kRoundoff<Z>));  // 1 − gate cancels; z·dy is up to 20
    EXPECT_TRUE(out.guards_intact() && in.guards_intact());
  }
}

}  // namespace
}  // namespace hadal::testing
