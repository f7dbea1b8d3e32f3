// kernels/linear.h on a device beside the CPU: every product's orientation, its epilogues, strides. The emulated device's loops, or cuBLASLt.
#include "kernels/linear.h"

#include <cmath>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/arena.h"
#include "runtime/compute_thread.h"
#include "tests/support/random_inputs.h"
#include "tests/support/test_device.h"

namespace hadal::testing {
namespace {

struct Case {
  int64_t rows, in, out;
};
const Case kCases[] = {{1, 1, 1}, {5, 7, 3}, {24, 16, 48}, {33, 40, 24}};

// A matrix on the device with three more columns than it shows, and the host's copy of it.
class OnDevice {
 public:
  OnDevice(const Stream& stream, int64_t rows, int64_t columns, uint32_t seed)
      : stream_(stream), values_(NormalValues(rows * (columns + kPadding), seed)), rows_(rows), columns_(columns) {
    ArenaLayout layout;
    const ArenaSlice slice = layout.Reserve<float>("matrix", static_cast<int64_t>(values_.size()));
    arena_ = *Arena::Allocate(layout, stream.device());
    data_ = arena_.Get<float>(slice);
    stream.FromHost(data_, values_.data(), bytes());
  }

  Matrix device() const { return {data_, rows_, columns_, columns_ + kPadding}; }
  Matrix host() { return {values_.data(), rows_, columns_, columns_ + kPadding}; }
  Vector device_vector() const { return {data_, columns_}; }  // of one row
  Vector host_vector() { return {values_.data(), columns_}; }

  // The device's matrix beside the host's. `terms`: of a sum.
  void ExpectAlike(int64_t terms) const {
    std::vector<float> found(values_.size());
    stream_.ToHost(found.data(), data_, bytes());
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_NEAR(found[i], values_[i], 2e-6 * std::sqrt(terms) * (1 + std::abs(values_[i]))) << "element " << i;
    }
  }

 private:
  static constexpr int64_t kPadding = 3;
  int64_t bytes() const { return static_cast<int64_t>(values_.size() * sizeof(float)); }

  const Stream stream_;
  std::vector<float> values_;
  int64_t rows_, columns_;
  Arena arena_;
  float* data_ = nullptr;
};

class LinearOnDeviceTest : public ::testing::TestWithParam<Case> {
 protected:
  LinearOnDeviceTest() { PrepareComputeThread(); }
  const std::unique_ptr<Device> device_ = MakeTestDevice(/*seed=*/1);
  const Stream stream_ = Stream::On(*device_, 1), cpu_ = Stream::Cpu(1);
};

TEST_P(LinearOnDeviceTest, Forward) {
  const auto& [rows, in, out] = GetParam();
  const Dropout dropout = {{.seed = 5, .step = 1, .sublayer = 3, .site = RandomSite::kActivation},
                           Dropout::Threshold(0.25)};
  for (const int epilogue : {0, 1, 2, 3, 4}) {  // none, bias, with ReLU, with dropout; ReLU alone
    OnDevice x(stream_, rows, in, 1), w(stream_, out, in, 2), b(stream_, 1, out, 3), y(stream_, rows, out, 4);
    LinearForwardArgs device = {.x = x.device(), .weight = w.device(), .relu = epilogue > 1, .y = y.device()};
    LinearForwardArgs host = {.x = x.host(), .weight = w.host(), .relu = epilogue > 1, .y = y.host()};
    if (epilogue > 0 && epilogue < 4) device.bias = b.device_vector(), host.bias = b.host_vector();
    if (epilogue == 3) device.dropout = host.dropout = dropout;
    LinearForward(stream_, device);
    LinearForward(cpu_, host);
    y.ExpectAlike(in);
  }
}

TEST_P(LinearOnDeviceTest, BackwardInput) {
  const auto& [rows, in, out] = GetParam();
  for (const int how : {0, 1, 2}) {  // plain, added, with a mask
    OnDevice dy(stream_, rows, out, 1), w(stream_, out, in, 2), relu(stream_, rows, in, 3), dx(stream_, rows, in, 4);
    LinearBackwardInputArgs device = {
        .dy = dy.device(), .weight = w.device(), .accumulate = how == 1, .dx = dx.device()};
    LinearBackwardInputArgs host = {.dy = dy.host(), .weight = w.host(), .accumulate = how == 1, .dx = dx.host()};
    if (how == 2) {
      device.relu_output = relu.device(), host.relu_output = relu.host();
      device.mask_scale = host.mask_scale = 1.25f;
    }
    LinearBackwardInput(stream_, device);
    LinearBackwardInput(cpu_, host);
    dx.ExpectAlike(out);
  }
}

TEST_P(LinearOnDeviceTest, BackwardWeight) {
  const auto& [rows, in, out] = GetParam();
  OnDevice dy(stream_, rows, out, 1), x(stream_, rows, in, 2), dw(stream_, out, in, 3), db(stream_, 1, out, 4);
  LinearBackwardWeight(stream_,
                       {.dy = dy.device(), .x = x.device(), .d_weight = dw.device(), .d_bias = db.device_vector()});
  LinearBackwardWeight(cpu_, {.dy = dy.host(), .x = x.host(), .d_weight = dw.host(), .d_bias = db.host_vector()});
  dw.ExpectAlike(rows);
  db.ExpectAlike(rows);
}

INSTANTIATE_TEST_SUITE_P(Shapes, LinearOnDeviceTest, ::testing::ValuesIn(kCases));

}  // namespace
}  // namespace hadal::testing
