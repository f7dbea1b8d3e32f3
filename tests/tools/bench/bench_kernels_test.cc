#include "tools/bench/bench_kernels.h"

#include <gmock/gmock.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "runtime/compute_thread.h"
#include "tests/support/test_device.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;

BenchKernelsOptions SmallBench() {
  return {
      .shapes =
          {.large_bytes = 2560, .rows = {8}, .widths = {64}, .lengths = {2, 8}, .vocabulary = 40, .slice_elements = 96},
      .rotation_bytes = 1,
      .batch_seconds = 0,
      .repeats = 1};
}

KernelSpeeds Measure(const BenchKernelsOptions& options, const Stream& stream) {
  PrepareComputeThread();
  return MeasureKernels(options, stream).value();
}

double BytesOf(const KernelSpeeds& speeds, const std::string& kernel, const std::string& shape, Storage storage) {
  for (const KernelSpeed& speed : speeds.kernels) {
    if (speed.kernel == kernel && speed.shape == shape && speed.storage == storage) return speed.bytes;
  }
  ADD_FAILURE() << "no " << kernel << ", " << shape;
  return 0;
}

// 8 rows, 64 columns, counted by hand.
void ExpectBytesCountedByHand(const KernelSpeeds& speeds, Storage storage) {
  const double b = storage == Storage::kFloat32 ? 4 : 2, elements = 8 * 64;
  const auto expect = [&](const std::string& kernel, double bytes) {
    EXPECT_EQ(BytesOf(speeds, kernel, "8 x 64", storage), bytes) << kernel;
  };
  for (const char* dropout : {"", ", dropout"}) {
    expect(std::string("residual_norm forward") + dropout, 4 * b * elements + 8 * 8 + 3 * 64 * 4);
    expect(std::string("residual_norm backward") + dropout, 4 * b * elements + 8 * 8 + 64 * 4 + 6 * 64 * 4);
  }
  expect("relu_backward", 3 * b * elements);
  // Tokens 0, 7919, 2·7919, … mod 40: eight different ones, at positions 0 to 7.
  expect("embedding forward, dropout", b * elements + 8 * 8 + b * elements + 4 * elements);
  expect("embedding backward, dropout", b * elements + 8 * 4 + 8 * elements);
  EXPECT_EQ(BytesOf(speeds, "cross_entropy", "8 x 40", storage), 2 * b * 8 * 40 + 12 * 8);
}

TEST(BenchKernels, CountsTheBytesOfAShapeAsByHand) {
  const KernelSpeeds speeds = Measure(SmallBench(), Stream::Cpu(2));
  ExpectBytesCountedByHand(speeds, Storage::kFloat32);
  EXPECT_EQ(BytesOf(speeds, "adam", "96", Storage::kFloat32), 28 * 96);
  EXPECT_EQ(BytesOf(speeds, "adam", "640", Storage::kFloat32), 28 * 640);  // large: 2,560 bytes a tensor
  EXPECT_EQ(BytesOf(speeds, "add", "96", Storage::kFloat32), 12 * 96);
  EXPECT_EQ(BytesOf(speeds, "sum_of_squares", "640", Storage::kFloat32), 4 * 640);
  EXPECT_EQ(BytesOf(speeds, "residual_norm forward", "10 x 64", Storage::kFloat32), 16 * 640 + 8 * 10 + 12 * 64);
}

TEST(BenchKernels, MeasuresEveryKernelOfADevice) {
  const std::unique_ptr<Device> device = testing::MakeTestDevice(1);
  const KernelSpeeds speeds = Measure(SmallBench(), Stream::On(*device, 1));
  EXPECT_GT(speeds.copy_bytes_per_second, 0);
  std::map<std::string, std::set<Storage>> measured;
  for (const KernelSpeed& speed : speeds.kernels) {
    measured[speed.kernel].insert(speed.storage);
    EXPECT_GT(speed.seconds, 0) << speed.kernel;
    EXPECT_EQ(speed.has_goal, speed.large && (speed.kernel.starts_with("residual_norm") ||
                                              speed.kernel.starts_with("adam") || speed.kernel == "cross_entropy"))
        << speed.kernel;
  }
  for (const char* kernel :
       {"residual_norm forward", "residual_norm forward, dropout", "residual_norm backward",
        "residual_norm backward, dropout", "cross_entropy", "embedding forward, dropout", "embedding backward, dropout",
        "relu_backward", "attention forward", "attention backward", "attention forward, causal",
        "attention backward, causal", "linear forward", "linear forward, bias, ReLU, dropout",
        "linear backward input, ReLU", "linear backward weight", "linear backward weight, bias", "orthogonalize"}) {
    EXPECT_EQ(measured[kernel].size(), 2u) << kernel;
  }
  for (const char* kernel : {"adam, bf16 copy", "add", "sum_of_squares", "convert from fp32", "convert from bf16",
                             "linear forward, bias, ReLU, mask", "linear backward input, mask"}) {
    EXPECT_EQ(measured[kernel].size(), 1u) << kernel;
  }
  EXPECT_EQ(measured.size(), 25u);
  ExpectBytesCountedByHand(speeds, Storage::kFloat32);
  ExpectBytesCountedByHand(speeds, Storage::kBFloat16);
  EXPECT_EQ(BytesOf(speeds, "adam, bf16 copy", "96", Storage::kFloat32), 30 * 96);
  EXPECT_EQ(BytesOf(speeds, "convert from fp32", "8 x 64", Storage::kBFloat16), 6 * 8 * 64);
}

TEST(BenchKernels, CountsTheArithmeticOfAttentionAndProducts) {
  const KernelSpeeds speeds = Measure(SmallBench(), Stream::Cpu(1));
  std::map<std::string, double> flops;
  for (const KernelSpeed& speed : speeds.kernels) flops[speed.kernel + ", " + speed.shape] = speed.flops;
  EXPECT_EQ(flops["attention forward, 8 x 64, sentences of 2"], 2 * 2.0 * 4 * (2 * 2) * 64);
  EXPECT_EQ(flops["attention backward, 8 x 64, sentences of 8"], 5 * 2.0 * (8 * 8) * 64);
  EXPECT_EQ(flops["attention forward, causal, 8 x 64, sentences of 8"], 2 * 2.0 * (8 * 9 / 2) * 64);
  EXPECT_EQ(flops["linear forward, 8 x 64 to 256"], 2.0 * 8 * 64 * 256);
  EXPECT_EQ(flops["linear backward input, ReLU, 8 x 256 to 64"], 2.0 * 8 * 64 * 256);
  EXPECT_EQ(flops["add, 96"], 0);
}

TEST(BenchKernels, WritesATableWithTheGoalOnADeviceAlone) {
  BenchKernelsOptions options = SmallBench();
  options.only = "adam";
  std::ostringstream on_device, on_cpu;
  const std::unique_ptr<Device> device = testing::MakeTestDevice(1);
  ASSERT_TRUE(RunBenchKernels(options, Stream::On(*device, 1), on_device).ok());
  EXPECT_THAT(on_device.str(), HasSubstr("copy: "));
  EXPECT_THAT(on_device.str(), HasSubstr("goal, 85% of the copy on large tensors: "));
  EXPECT_THAT(on_device.str(), HasSubstr("adam, bf16 copy, fp32, 640)"));
  ASSERT_TRUE(RunBenchKernels(options, Stream::Cpu(1), on_cpu).ok());
  EXPECT_THAT(on_cpu.str(), ::testing::Not(HasSubstr("goal")));
  std::ostringstream json;
  options.json = true;
  ASSERT_TRUE(RunBenchKernels(options, Stream::On(*device, 1), json).ok());
  const nlohmann::json parsed = nlohmann::json::parse(json.str());
  EXPECT_EQ(parsed["kernels"].size(), 2u);
  EXPECT_TRUE(parsed["goal_reached"].is_boolean());
  EXPECT_EQ(parsed["kernels"][0]["bytes"], 30 * 640);
  EXPECT_NEAR(parsed["kernels"][0]["share_of_copy"].get<double>(),
              30 * 640 / parsed["kernels"][0]["seconds"].get<double>() / parsed["copy_bytes_per_second"].get<double>(),
              1e-9);
}

TEST(BenchKernels, SaysThatNoKernelHasTheName) {
  BenchKernelsOptions options = SmallBench();
  options.only = "softmax";
  std::ostringstream out;
  const absl::Status status = RunBenchKernels(options, Stream::Cpu(1), out);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("softmax"));
}

}  // namespace
}  // namespace hadal
