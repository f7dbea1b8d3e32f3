// kernels/linear.h on a device beside the CPU: every product's orientation, its epilogues, strides, its storage. The
// emulated device's loops, or cuBLASLt. In bf16 the CPU computes in fp32 from the same, rounded operands: what differs
// is one rounding of the result, 2^-8 of it, and with dropout a second one.
#include "kernels/linear.h"

#include <cmath>
#include <tuple>

#include "gtest/gtest.h"
#include "kernels/gradient_batch.h"
#include "runtime/arena.h"
#include "runtime/compute_thread.h"
#include "runtime/stream.h"
#include "tests/support/random_inputs.h"
#include "tests/support/test_device.h"

namespace hadal::testing {
namespace {

struct Case {
  int64_t rows, in, out;
};
const Case kCases[] = {{1, 1, 1}, {5, 7, 3}, {24, 16, 48}, {33, 40, 24}};

// A matrix on the device with some more columns than it shows, and the host's copy of it in fp32.
class OnDevice {
 public:
  OnDevice(const Stream& stream, Storage storage, int64_t rows, int64_t columns, uint32_t seed, int64_t padding = 3)
      : stream_(stream),
        storage_(storage),
        values_(NormalValues(rows * (columns + padding), seed)),
        rows_(rows),
        columns_(columns),
        stride_(columns + padding) {
    ArenaLayout layout;
    const ArenaSlice slice = layout.ReserveBytes("matrix", std::ssize(values_) * BytesOf(storage));
    arena_ = *Arena::Allocate(layout, stream.device());
    data_ = arena_.Get<std::byte>(slice);
    if (storage == Storage::kFloat32) {
      stream.FromHost(data_, values_.data(), slice.bytes);
      return;
    }
    std::vector<BFloat16> rounded;
    for (float& value : values_) value = Widened(rounded.emplace_back(RoundedToBFloat16(value)));
    stream.FromHost(data_, rounded.data(), slice.bytes);
  }

  AnyMatrix device() const {
    AnyMatrix m(data_, rows_, columns_, storage_);
    m.stride = stride_;
    return m;
  }
  Matrix host() { return {values_.data(), rows_, columns_, stride_}; }
  // Of one row, from an element on.
  ConstAnyVector device_vector(int64_t first = 0) const {
    if (storage_ == Storage::kFloat32) return Vector(device().floats().data + first, columns_ - first);
    return VectorOf<const BFloat16>(reinterpret_cast<const BFloat16*>(data_) + first, columns_ - first);
  }
  Vector floats_vector() const { return {device().floats().data, columns_}; }
  Vector host_vector(int64_t first = 0) { return {values_.data() + first, columns_ - first}; }

  // The device's matrix beside the host's. `terms`: of a sum; `roundings`: to bf16 behind it.
  void ExpectAlike(int64_t terms, int roundings = 1) const {
    const bool narrow = storage_ == Storage::kBFloat16;
    const double tolerance = 2e-6 * std::sqrt(terms) + (narrow ? roundings * 0x1p-8 : 0);
    const std::vector<float> found = HostValues(stream_, {data_, 1, static_cast<int64_t>(values_.size()), storage_});
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_NEAR(found[i], values_[i], tolerance * (1 + std::abs(values_[i]))) << "element " << i;
    }
  }

 private:
  const Stream stream_;
  const Storage storage_;
  std::vector<float> values_;
  int64_t rows_, columns_, stride_;
  Arena arena_;
  std::byte* data_ = nullptr;
};

class LinearOnDeviceTest : public ::testing::TestWithParam<std::tuple<Case, Storage>> {
 protected:
  LinearOnDeviceTest() { PrepareComputeThread(); }
  OnDevice Make(int64_t rows, int64_t columns, uint32_t seed) const {
    return OnDevice(stream_, std::get<Storage>(GetParam()), rows, columns, seed);
  }
  OnDevice MakeDense(int64_t rows, int64_t columns, uint32_t seed) const {
    return OnDevice(stream_, std::get<Storage>(GetParam()), rows, columns, seed, /*padding=*/0);
  }
  // A gradient of weights, which is fp32 in any case.
  OnDevice MakeWide(int64_t rows, int64_t columns, uint32_t seed) const {
    return OnDevice(stream_, Storage::kFloat32, rows, columns, seed);
  }

  const std::unique_ptr<Device> device_ = MakeTestDevice(/*seed=*/1);
  const Stream stream_ = Stream::On(*device_, 1), cpu_ = Stream::Cpu(1);
};

TEST_P(LinearOnDeviceTest, Forward) {
  const auto& [rows, in, out] = std::get<Case>(GetParam());
  const Dropout dropout = {{.seed = 5, .step = 1, .sublayer = 3, .site = RandomSite::kActivation},
                           Dropout::Threshold(0.25)};
  for (const int epilogue :
       {0, 1, 2, 3, 4, 5}) {  // none, bias, with ReLU, with dropout; ReLU alone; bias behind others
    const int64_t first = epilogue == 5 ? 1 : 0;
    OnDevice x = Make(rows, in, 1), w = Make(out, in, 2), b = Make(1, first + out, 3), y = Make(rows, out, 4);
    const bool relu = epilogue > 1 && epilogue < 5;
    LinearForwardArgs device = {.x = x.device(), .weight = w.device(), .relu = relu, .y = y.device()};
    LinearForwardArgs host = {.x = x.host(), .weight = w.host(), .relu = relu, .y = y.host()};
    if (epilogue > 0 && epilogue != 4) device.bias = b.device_vector(first), host.bias = b.host_vector(first);
    if (epilogue == 3) device.dropout = host.dropout = dropout;
    LinearForward(stream_, device);
    LinearForward(cpu_, host);
    y.ExpectAlike(in, epilogue == 3 ? 2 : 1);
  }
}

// A gradient that several readers add to, and a stream that stays fp32, take a product of bf16 without rounding.
TEST_P(LinearOnDeviceTest, BackwardInput) {
  const auto& [rows, in, out] = std::get<Case>(GetParam());
  for (const int how : {0, 1, 2, 3}) {  // plain, added, with a mask, added to fp32
    OnDevice dy = Make(rows, out, 1), w = Make(out, in, 2), relu = Make(rows, in, 3);
    OnDevice dx = how == 3 ? MakeWide(rows, in, 4) : Make(rows, in, 4);
    const bool add = how % 2 == 1;
    LinearBackwardInputArgs device = {.dy = dy.device(), .weight = w.device(), .accumulate = add, .dx = dx.device()};
    LinearBackwardInputArgs host = {.dy = dy.host(), .weight = w.host(), .accumulate = add, .dx = dx.host()};
    if (how == 2) {
      device.relu_output = relu.device(), host.relu_output = relu.host();
      device.mask_scale = host.mask_scale = 1.25f;
    }
    LinearBackwardInput(stream_, device);
    LinearBackwardInput(cpu_, host);
    dx.ExpectAlike(out, how == 2 ? 2 : 1);
  }
}

// A ReLU between two products, as a feed-forward layer has it: by its mask where the device's products have one for the
// shape, else by its output.
TEST_P(LinearOnDeviceTest, ReluBetweenProducts) {
  const auto& [rows, in, out] = std::get<Case>(GetParam());
  const int64_t hidden = in + out;
  for (const bool bias : {true, false}) {
    OnDevice x = MakeDense(rows, in, 1), w = MakeDense(hidden, in, 2), b = MakeDense(1, hidden, 3),
             y = MakeDense(rows, hidden, 4);
    OnDevice dy = MakeDense(rows, out, 5), contraction = MakeDense(out, hidden, 6), dx = MakeDense(rows, hidden, 7);
    OnDevice mask(stream_, Storage::kFloat32, 1, ReluMaskBytes(rows, hidden) / 4, 8, /*padding=*/0);
    const bool masked = HasReluMask(
        stream_,
        {.rows = rows, .hidden_weight = w.device(), .hidden_bias = bias, .contraction_weight = contraction.device()});
    auto* const bits = masked ? static_cast<std::byte*>(mask.device().data) : nullptr;
    LinearForward(stream_, {.x = x.device(),
                            .weight = w.device(),
                            .bias = bias ? b.device_vector() : ConstAnyVector(),
                            .relu = true,
                            .relu_mask = bits,
                            .y = y.device()});
    LinearBackwardInput(stream_, {.dy = dy.device(),
                                  .weight = contraction.device(),
                                  .relu_output = masked ? AnyMatrix() : y.device(),
                                  .relu_mask = bits,
                                  .dx = dx.device()});
    LinearForward(
        cpu_,
        {.x = x.host(), .weight = w.host(), .bias = bias ? b.host_vector() : Vector(), .relu = true, .y = y.host()});
    LinearBackwardInput(cpu_,
                        {.dy = dy.host(), .weight = contraction.host(), .relu_output = y.host(), .dx = dx.host()});
    y.ExpectAlike(in);
    dx.ExpectAlike(out);
  }
}

TEST_P(LinearOnDeviceTest, BackwardWeight) {
  const auto& [rows, in, out] = std::get<Case>(GetParam());
  OnDevice dy = Make(rows, out, 1), x = Make(rows, in, 2), dw = MakeWide(out, in, 3), db = MakeWide(1, out, 4);
  LinearBackwardWeight(
      stream_, {.dy = dy.device(), .x = x.device(), .d_weight = dw.device().floats(), .d_bias = db.floats_vector()});
  LinearBackwardWeight(cpu_, {.dy = dy.host(), .x = x.host(), .d_weight = dw.host(), .d_bias = db.host_vector()});
  dw.ExpectAlike(rows);
  db.ExpectAlike(rows);
}

// Gradients of several layers' weights, at constant distances where all lie alike: neither their number nor company
// changes a bit.
TEST_P(LinearOnDeviceTest, WeightGradientsTogetherAreThoseOfEachAlone) {
  const auto& [rows, in, out] = std::get<Case>(GetParam());
  constexpr int kMost = 8;
  OnDevice dy = MakeDense(kMost * rows, out, 1), x = MakeDense(kMost * rows, in, 2);
  OnDevice partials(stream_, Storage::kFloat32, 1, kMost * 3 * GradientBatch::Floats(rows, out, out), 5, /*padding=*/0);
  const auto gradients = [&](int count, bool together) {
    OnDevice dw(stream_, Storage::kFloat32, kMost * out, in, 3, /*padding=*/0);
    OnDevice db(stream_, Storage::kFloat32, kMost, out, 4, /*padding=*/0);
    GradientBatch batch;
    batch.Bind(partials.floats_vector());
    for (int i = 0; i < count; ++i) {
      LinearBackwardWeight(stream_, {.dy = dy.device().Rows(i * rows, rows),
                                     .x = x.device().Rows(i * rows, rows),
                                     .d_weight = dw.device().floats().Rows(i * out, out),
                                     .d_bias = {db.device().floats().row(i), out},
                                     .batch = together ? &batch : nullptr});
    }
    batch.Launch(stream_);
    std::vector<float> all = HostValues(stream_, dw.device());
    const std::vector<float> sums = HostValues(stream_, db.device());
    all.insert(all.end(), sums.begin(), sums.end());
    return all;
  };
  for (const int count : {1, 3, kMost}) EXPECT_EQ(gradients(count, true), gradients(count, false)) << count;
}

INSTANTIATE_TEST_SUITE_P(Shapes, LinearOnDeviceTest,
                         ::testing::Combine(::testing::ValuesIn(kCases),
                                            ::testing::Values(Storage::kFloat32, Storage::kBFloat16)));

}  // namespace
}  // namespace hadal::testing
