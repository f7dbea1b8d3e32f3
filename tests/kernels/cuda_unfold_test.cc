// The kernels of speech's front end against their definitions: unfold and fold bit for bit, as the CPU's.
#include "kernels/cuda/unfold.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/glu.h"
#include "tests/support/kernel_device.h"
#include "tests/support/random_inputs.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {
namespace {

using cuda::BFloat16;

constexpr int64_t kTaps = kConvolutionTaps, kPaddingRows = 3;

// 37 and 300 columns: not of eights, and more than a block's.
struct Case {
  int64_t width, block;
  Placement place;
};
const Case kCases[] = {{1, 100, {}}, {37, 7, {3, 5}}, {80, 100, {}}, {300, 5, {1, 2}}, {256, 6, {8, 8}}};

// Utterances of each length that may be an exception, and padding rows behind them.
class Utterances {
 public:
  Utterances() {
    for (const int32_t length : {1, 2, 3, 4, 5, 9, 16}) {
      x_offsets_.push_back(x_offsets_.back() + length);
      u_offsets_.push_back(u_offsets_.back() + (length + 1) / 2);
    }
  }
  int64_t x_rows() const { return x_offsets_.back(); }
  int64_t rows() const { return u_offsets_.back() + kPaddingRows; }
  std::vector<cuda::RowTaps> Taps() const {
    std::vector<cuda::RowTaps> taps = cuda::TapsOfRows(x_offsets_, u_offsets_);
    taps.resize(rows());
    return taps;
  }
  // Calls visit(row of u, tap, row of x) in ascending order.
  template <typename Visit>
  void ForTaps(Visit visit) const {
    for (size_t n = 0; n + 1 < x_offsets_.size(); ++n) {
      for (int64_t j = 0; j < u_offsets_[n + 1] - u_offsets_[n]; ++j) {
        for (int64_t k = 0; k < kTaps; ++k) {
          const int64_t x = x_offsets_[n] + 2 * j + k - 2;
          if (x >= x_offsets_[n] && x < x_offsets_[n + 1]) visit(u_offsets_[n] + j, k, x);
        }
      }
    }
  }

 private:
  std::vector<int32_t> x_offsets_ = {0}, u_offsets_ = {0};
};

template <typename Pair>
class CudaUnfoldTest : public ::testing::Test {
 protected:
  using X = typename Pair::first_type;
  using U = typename Pair::second_type;

  // u and, from du, dx, in blocks of rows.
  std::pair<std::vector<float>, std::vector<float>> Run(const Case& c, uint64_t seed) const {
    KernelDevice device(seed);
    const std::vector<float> x = NormalValues(utterances_.x_rows() * c.width, 1),
                             du = NormalValues(utterances_.rows() * kTaps * c.width, 2),
                             before = NormalValues(utterances_.x_rows() * c.width, 3);
    const DeviceVectorOf<cuda::RowTaps> taps(device, utterances_.Taps());
    const DeviceMatrixOf<X> in(device, x, utterances_.x_rows(), c.width, c.place);
    const DeviceMatrixOf<U> out(device, std::vector<float>(du.size(), NAN), utterances_.rows(), kTaps * c.width,
                                c.place),
        gradient(device, du, utterances_.rows(), kTaps * c.width, c.place);
    const DeviceMatrixOf<float> to(device, before, utterances_.x_rows(), c.width, c.place);
    for (int64_t first = 0; first < utterances_.rows(); first += c.block) {
      const int64_t rows = std::min(c.block, utterances_.rows() - first);
      const DeviceTaps device_taps = {taps.data(), utterances_.rows()};
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
    const std::vector<float> x = Rounded<X>(NormalValues(utterances_.x_rows() * c.width, 1)),
                             du = Rounded<U>(NormalValues(utterances_.rows() * kTaps * c.width, 2));
    std::vector<float> u(du.size(), 0.0f), dx = NormalValues(x.size(), 3);
    utterances_.ForTaps([&](int64_t row, int64_t k, int64_t x_row) {
      for (int64_t column = 0; column < c.width; ++column) {
        const int64_t at = (row * c.width + column) * kTaps + k;
        u[at] = Rounded<U>(x[x_row * c.width + column]);
        dx[x_row * c.width + column] += du[at];
      }
    });
    return {u, dx};
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
    const std::vector<float> dy = NormalValues(rows * width, 2);
    z[width] = -1e4f, z[2 * width - 1] = 1e4f;  // gates that are shut and open; of one column: open
    z = Rounded<Z>(z);
    const DeviceMatrixOf<Z> in(device, z, rows, 2 * width, place);
    const DeviceMatrixOf<Y> out(device, std::vector<float>(rows * width, NAN), rows, width, place);
    const DeviceMatrixOf<float> gradient(device, dy, rows, width, place);
    cuda::GluForward(device.stream(), {.z = in.view(), .y = out.view()});
    cuda::GluBackward(device.stream(), {.dy = gradient.view(), .z = in.view()});
    std::vector<double> y, dz(z.size());
    for (int64_t i = 0; i < rows * width; ++i) {
      const int64_t at = i / width * 2 * width + i % width;
      const double gate = 1 / (1 + std::exp(-static_cast<double>(z[at + width])));
      y.push_back(z[at] * gate);
      dz[at] = dy[i] * gate;
      dz[at + width] = dy[i] * z[at] * gate * (1 - gate);
    }
    EXPECT_TRUE(NearReference(out.dense(), y, 1, 8, kRoundoff<Y>));
    EXPECT_TRUE(NearReference(in.dense(), dz, 8, 8, kRoundoff<Z>));  // 1 − gate cancels; z·dy is up to 20
    EXPECT_TRUE(out.guards_intact() && in.guards_intact());
  }
}

}  // namespace
}  // namespace hadal::testing
