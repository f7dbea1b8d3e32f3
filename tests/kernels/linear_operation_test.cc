// What rides on a linear layer's products (kernels/cuda_host/linear_operation.cc), and what is a launch of its own
// where cuBLASLt has no algorithm with the epilogue: the emulated one is set so. Values are those of
// linear_on_device_test; here they are compared with each other.
#include <cublasLt.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "gtest/gtest.h"
#include "kernels/cuda_host/cuda_device.h"
#include "kernels/gradient_batch.h"
#include "kernels/linear.h"
#include "runtime/arena.h"
#include "runtime/stream.h"
#include "tests/support/emulated_cuda.h"
#include "tests/support/random_inputs.h"

namespace hadal::testing {
namespace {

constexpr int64_t kRows = 40, kIn = 24, kHidden = 136, kOut = 16;
constexpr int kForwardWithMask = CUBLASLT_EPILOGUE_RELU_AUX_BIAS, kBackwardWithMask = CUBLASLT_EPILOGUE_DRELU;

// Two products with a ReLU between them, on a device, in bf16 or fp32.
class Layer {
 public:
  Layer(const Stream& stream, Storage storage) : stream_(stream), storage_(storage) {
    ArenaLayout layout;
    const ArenaSlice matrices = layout.ReserveBytes("matrices", kBytes);
    arena_ = *Arena::Allocate(layout, stream.device());
    next_ = arena_.Get<std::byte>(matrices);
    x = Filled(kRows, kIn, 1), weight = Filled(kHidden, kIn, 2), bias = Filled(1, kHidden, 3);
    d_y = Filled(kRows, kOut, 4), contraction = Filled(kOut, kHidden, 5);
    y = Place(kRows, kHidden, storage), d_x = Place(kRows, kHidden, storage);
    d_weight = Place(kHidden, kIn, Storage::kFloat32), d_bias = Place(1, kHidden, Storage::kFloat32);
    mask = static_cast<std::byte*>(Place(1, ReluMaskBytes(kRows, kHidden) / 4, Storage::kFloat32).data);
  }

  ConstAnyVector BiasVector() const {
    if (storage_ == Storage::kFloat32) return Vector(bias.floats().data, kHidden);
    return VectorOf<BFloat16>(bias.of<BFloat16>().data, kHidden);
  }
  bool HasMask() const {
    return HasReluMask(
        stream_, {.rows = kRows, .hidden_weight = weight, .hidden_bias = true, .contraction_weight = contraction});
  }
  void Forward(bool masked) const {
    LinearForward(
        stream_,
        {.x = x, .weight = weight, .bias = BiasVector(), .relu = true, .relu_mask = masked ? mask : nullptr, .y = y});
  }
  void BackwardInput(bool masked) const {
    LinearBackwardInputArgs args{.dy = d_y, .weight = contraction, .dx = d_x};
    if (masked) args.relu_mask = mask;
    if (!masked) args.relu_output = y;
    LinearBackwardInput(stream_, args);
  }
  void BackwardWeight() const {
    LinearBackwardWeight(stream_,
                         {.dy = d_x, .x = x, .d_weight = d_weight.floats(), .d_bias = {d_bias.floats().data, kHidden}});
  }

  AnyMatrix x, weight, bias, d_y, contraction, y, d_x, d_weight, d_bias;
  std::byte* mask = nullptr;

 private:
  static constexpr int64_t kBytes = 1 << 18;

  AnyMatrix Place(int64_t rows, int64_t columns, Storage storage) {
    const AnyMatrix matrix(next_, rows, columns, storage);
    next_ += (matrix.bytes() + 255) / 256 * 256 + 16;  // on 16 bytes, and no more
    return matrix;
  }
  AnyMatrix Filled(int64_t rows, int64_t columns, uint32_t seed) {
    const AnyMatrix matrix = Place(rows, columns, storage_);
    const std::vector<float> values = NormalValues(rows * columns, seed);
    std::vector<BFloat16> rounded;
    for (const float value : values) rounded.push_back(RoundedToBFloat16(value));
    const bool narrow = storage_ == Storage::kBFloat16;
    stream_.FromHost(matrix.data, narrow ? static_cast<const void*>(rounded.data()) : values.data(), matrix.bytes());
    return matrix;
  }

  const Stream stream_;
  const Storage storage_;
  Arena arena_;
  std::byte* next_ = nullptr;
};

class LinearOperationTest : public ::testing::TestWithParam<Storage> {
 protected:
  ~LinearOperationTest() override { EmulatedCuda::Instance().machine = {}; }

  struct Results {
    bool masked = false;
    int64_t forward = 0, backward_input = 0, backward_weight = 0;  // launches
    std::vector<float> y, d_x, d_weight, d_bias;
  };
  // A layer, forward and backward, where cuBLASLt has no algorithm with some epilogues, on a GPU of some compute
  // capability.
  static Results Run(const std::set<int>& refused, const std::set<int>& slow = {}, int major = 9,
                     const std::set<int>& unsplit = {}) {
    EmulatedCuda::Instance().machine = {
        .major = major, .refused_epilogues = refused, .slow_epilogues = slow, .unsplit_epilogues = unsplit};
    const std::unique_ptr<Device> device = *cuda::OpenCudaDevice({});
    const Stream stream = Stream::On(*device, 1);
    const Layer layer(stream, GetParam());
    Results results{.masked = layer.HasMask()};
    const auto launches = [&](const auto& run) {
      const int64_t before = device->launches();
      run();
      return device->launches() - before;
    };
    results.forward = launches([&] { layer.Forward(results.masked); });
    results.backward_input = launches([&] { layer.BackwardInput(results.masked); });
    for (int time = 0; time < 2; ++time) results.backward_weight = launches([&] { layer.BackwardWeight(); });
    results.y = HostValues(stream, layer.y), results.d_x = HostValues(stream, layer.d_x);
    results.d_weight = HostValues(stream, layer.d_weight), results.d_bias = HostValues(stream, layer.d_bias);
    return results;
  }
  static void ExpectAlike(const std::vector<float>& found, const std::vector<float>& expected, double tolerance) {
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_NEAR(found[i], expected[i], tolerance * (1 + std::abs(expected[i]))) << i;
    }
  }
};

TEST_P(LinearOperationTest, EverythingRidesOnTheProducts) {
  const Results all = Run({});
  EXPECT_TRUE(all.masked);
  EXPECT_EQ(all.forward, 1);
  EXPECT_EQ(all.backward_input, 1);
  EXPECT_EQ(all.backward_weight, 2) << "the bias's gradient is added from scratch";
  double largest = 0;
  for (const float value : all.d_bias) largest = std::max(largest, std::abs(double{value}));
  EXPECT_GT(largest, 1);
}

TEST_P(LinearOperationTest, WithoutAlgorithmsEachIsALaunch) {
  const std::set<int> forward = {CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_RELU_BIAS,
                                 kForwardWithMask};
  std::set<int> every = forward;
  every.insert({kBackwardWithMask, CUBLASLT_EPILOGUE_BGRADB});
  const Results none = Run(every), some = Run(forward);
  EXPECT_FALSE(none.masked);
  EXPECT_EQ(none.forward, 2);
  EXPECT_EQ(none.backward_input, 2);
  EXPECT_EQ(none.backward_weight, 3) << "sums of blocks of rows, and their sums";
  // In bf16 y is rounded in front of the bias too, so that its sign may be another next to 0: gradients are compared
  // for the same y.
  ExpectAlike(none.y, Run({}).y, GetParam() == Storage::kBFloat16 ? 0x1p-6 : 1e-5);
  EXPECT_EQ(none.d_x, some.d_x);
  EXPECT_EQ(none.d_weight, some.d_weight);
  ExpectAlike(none.d_bias, some.d_bias, 1e-5);
}

// Neither half of the mask is of use alone.
TEST_P(LinearOperationTest, AMaskIsWrittenAndReadOrNeither) {
  const Results all = Run({});
  for (const int refused : {kForwardWithMask, kBackwardWithMask}) {
    const Results found = Run({refused});
    EXPECT_FALSE(found.masked);
    EXPECT_EQ(found.forward, 1) << "bias and ReLU ride on it still";
    EXPECT_EQ(found.backward_input, 2);
    EXPECT_EQ(found.y, all.y);
    EXPECT_EQ(found.d_x, all.d_x);
  }
}

// Where its kernels lack the instructions that the bare product's have, a mask or a sum does not ride; before there
// were such, it does.
TEST_P(LinearOperationTest, NothingRidesThatCostsTheProductItsSpeed) {
  for (const int slow : {kForwardWithMask, kBackwardWithMask}) EXPECT_FALSE(Run({}, {slow}).masked);
  const Results sums_apart = Run({}, {CUBLASLT_EPILOGUE_BGRADB}), all = Run({});
  EXPECT_TRUE(sums_apart.masked);
  EXPECT_EQ(sums_apart.d_weight, all.d_weight);
  EXPECT_EQ(sums_apart.backward_weight, 3);
  ExpectAlike(sums_apart.d_bias, all.d_bias, 1e-5);
  const Results older = Run({}, {kForwardWithMask, kBackwardWithMask, CUBLASLT_EPILOGUE_BGRADB}, /*major=*/8);
  EXPECT_TRUE(older.masked);
  EXPECT_EQ(older.backward_weight, 2);
}

// On older GPUs too: one that does not split a sum over k which the product alone splits.
TEST_P(LinearOperationTest, NothingRidesThatKeepsASumWhole) {
  const Results apart = Run({}, {}, /*major=*/8, {CUBLASLT_EPILOGUE_BGRADB}), all = Run({}, {}, 8);
  EXPECT_EQ(all.backward_weight, 2);
  EXPECT_EQ(apart.backward_weight, 3);
  EXPECT_EQ(apart.d_weight, all.d_weight);
  EXPECT_TRUE(apart.masked);
  EXPECT_FALSE(Run({}, {}, 8, {kBackwardWithMask}).masked);
}

// The plan is asked for as if a bias lay on 16 bytes, whatever the first one's place is.
TEST_P(LinearOperationTest, NoPlanDependsOnWhoseBiasCameFirst) {
  const std::unique_ptr<Device> device = *cuda::OpenCudaDevice({});
  const Stream stream = Stream::On(*device, 1);
  const Layer layer(stream, GetParam());
  auto* const scratch = static_cast<std::byte*>(layer.y.data);
  const uintptr_t to_256 = -reinterpret_cast<uintptr_t>(scratch) % 256;
  for (const uintptr_t beside : {uintptr_t{0}, uintptr_t{16}}) {
    ConstAnyVector bias = layer.BiasVector();
    bias.data = scratch + to_256 + beside;
    LinearForward(stream, {.x = layer.x, .weight = layer.weight, .bias = bias, .y = layer.d_x});
  }
  stream.Synchronize();
}

TEST_P(LinearOperationTest, AMaskThatTheProductsDoNotHaveIsOurOwnBug) {
  EmulatedCuda::Instance().machine.refused_epilogues = {kForwardWithMask};
  const std::unique_ptr<Device> device = *cuda::OpenCudaDevice({});
  const Layer layer(Stream::On(*device, 1), GetParam());
  EXPECT_DEATH(layer.Forward(/*masked=*/true), "offered");
}

// Products of one shape at a constant distance are one launch, with their sums; of two such sets two. Where the library
// takes fewer at once, they are as many launches as needed, with the same bits.
TEST(WeightGradientsOperationTest, OfEqualShapeAreOneLaunch) {
  struct Found {
    int64_t launches = 0;
    std::vector<float> gradients;
  };
  constexpr int64_t kProducts = 8, kNarrow = 16, kBatchFloats = 1 << 16;
  const auto run = [&](int most_together, const std::set<int>& refused, int weight_gradient_batch = 1) {
    EmulatedCuda::Instance().machine = {.refused_epilogues = refused, .most_products_together = most_together};
    const std::unique_ptr<Device> device = *cuda::OpenCudaDevice({.weight_gradient_batch = weight_gradient_batch});
    const Stream stream = Stream::On(*device, 1);
    ArenaLayout layout;
    const auto floats = [&](int64_t count) { return layout.Reserve<float>("test", count); };
    const ArenaSlice operands = floats(kProducts * kRows * (kOut + kIn)), sums = floats(kProducts * kOut);
    const ArenaSlice weights = floats(kProducts * kOut * kIn), memory = floats(kBatchFloats);
    const Arena arena = *Arena::Allocate(layout, device.get());
    const std::vector<float> values = NormalValues(kProducts * kRows * (kOut + kIn), 1);
    stream.FromHost(arena.Get<float>(operands), values.data(), operands.bytes);
    stream.Clear(arena.Get<float>(weights), weights.bytes);
    stream.Clear(arena.Get<float>(sums), sums.bytes);
    GradientBatch batch;
    batch.Bind({arena.Get<float>(memory), kBatchFloats});
    float* const at = arena.Get<float>(operands);
    for (int64_t i = 0; i < kProducts; ++i) {
      const int64_t in = i < 2 ? kNarrow : kIn;
      LinearBackwardWeight(stream, {.dy = Matrix(at + i * kRows * (kOut + kIn), kRows, kOut),
                                    .x = Matrix(at + i * kRows * (kOut + kIn) + kRows * kOut, kRows, in),
                                    .d_weight = {arena.Get<float>(weights) + i * kOut * kIn, kOut, in},
                                    .d_bias = {arena.Get<float>(sums) + i * kOut, kOut},
                                    .batch = &batch});
    }
    const int64_t before = device->launches();
    batch.Launch(stream);
    Found found{.launches = device->launches() - before};
    found.gradients = HostValues(stream, Matrix(arena.Get<float>(weights), kProducts, kOut * kIn));
    const std::vector<float> biases = HostValues(stream, Matrix(arena.Get<float>(sums), kProducts, kOut));
    found.gradients.insert(found.gradients.end(), biases.begin(), biases.end());
    return found;
  };
  const Found all = run(65535, {});
  EXPECT_EQ(all.launches, 2 + 1) << "the sums are added to the biases' gradients together";
  const Found fewer = run(4, {});
  EXPECT_EQ(fewer.launches, 1 + 2 + 1);
  EXPECT_EQ(fewer.gradients, all.gradients);
  const Found alone = run(1, {});
  EXPECT_EQ(alone.launches, kProducts + 1);
  EXPECT_EQ(alone.gradients, all.gradients);
  const Found apart = run(65535, {CUBLASLT_EPILOGUE_BGRADB});
  EXPECT_EQ(apart.launches, 2 * 2 + 1) << "sums of blocks of rows beside the products";
  const Found apart_alone = run(1, {CUBLASLT_EPILOGUE_BGRADB});
  EXPECT_EQ(apart_alone.gradients, apart.gradients);
  // The emulated library's choice for several adds in another order.
  const Found chosen_for_three = run(65535, {}, 3);
  EXPECT_NE(chosen_for_three.gradients, all.gradients);
  EXPECT_EQ(run(1, {}, 3).gradients, chosen_for_three.gradients);
  EmulatedCuda::Instance().machine = {};
}

INSTANTIATE_TEST_SUITE_P(Storages, LinearOperationTest, ::testing::Values(Storage::kFloat32, Storage::kBFloat16));

}  // namespace
}  // namespace hadal::testing
