#include "tools/bench/bench_step.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/comm/in_process_communicator.h"
#include "runtime/compute_thread.h"
#include "tests/support/test_device.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

BenchStepOptions SmallBench() {
  return {.d_model = 16,
          .heads = 2,
          .encoder_layers = 2,
          .decoder_layers = 1,
          .vocabulary = 64,
          .tokens = 64,
          .length = 16,
          .repeats = 3,
          .json = true};
}

nlohmann::json Measure(const BenchStepOptions& options, int ranks) {
  std::ostringstream out;
  InProcessWorld world(ranks);
  const absl::Status status = world.Run([&](Communicator& communicator) {
    PrepareComputeThread();
    return RunBenchStep(options, communicator, Stream::Cpu(1), out);
  });
  EXPECT_TRUE(status.ok()) << status;
  return status.ok() ? nlohmann::json::parse(out.str()) : nlohmann::json();
}

// Forward products of one micro-batch by hand: 2 · rows · in · out each; a step takes three of each linear one.
double LinearFlops(const BenchStepOptions& o, bool recompute) {
  const double d = o.d_model, f = 4 * d;
  const double encoder = 4 * d * d + 2 * d * f, decoder = 8 * d * d + 2 * d * f;
  const double layers = o.encoder_layers * encoder + o.decoder_layers * decoder, head = d * o.vocabulary;
  return 2 * o.tokens * ((recompute ? 4 : 3) * layers + 3 * head);
}

// Attention: two products forward, five backward, a head's square each; causal: pairs of a query and an earlier key.
double AttentionFlops(const BenchStepOptions& o, bool recompute) {
  const double product = 2.0 * o.tokens * o.length * o.d_model;
  return (recompute ? 9 : 7) * product *
         (o.encoder_layers + (1 + (o.length + 1) / (2.0 * o.length)) * o.decoder_layers);
}

TEST(BenchStep, CountsTheProductsOfAStep) {
  for (const int recompute_every : {0, 2}) {
    BenchStepOptions options = SmallBench();
    options.recompute_every = recompute_every;
    const nlohmann::json json = Measure(options, 1);
    const bool recompute = recompute_every > 0;
    EXPECT_DOUBLE_EQ(json["gemm_flops"].get<double>(),
                     LinearFlops(options, recompute) + AttentionFlops(options, recompute));
  }
}

TEST(BenchStep, ReportsOneValueARepeatAndPlanEqualToArena) {
  const nlohmann::json json = Measure(SmallBench(), 1);
  EXPECT_EQ(json["step_seconds"].size(), 3u);
  EXPECT_EQ(json["gemm_limit_ways"]["multiply-adds in registers"].size(), 3u);
  EXPECT_GT(json["share_of_gemm_limit"].get<double>(), 0);
  EXPECT_EQ(json["plan_bytes"], json["arena_bytes"]);
  EXPECT_GT(json["peak_rss_bytes"][0].get<double>(), 0);
}

// The ranks' shares of the products add up to the model's.
TEST(BenchStep, SplitsTheProductsOverRanks) {
  BenchStepOptions options = SmallBench();
  options.micro_batches = 3;
  const nlohmann::json json = Measure(options, 2);
  EXPECT_EQ(json["forward_seconds"].size(), 2u);
  EXPECT_DOUBLE_EQ(json["gemm_flops"].get<double>(),
                   3 * (LinearFlops(options, false) + AttentionFlops(options, false)));
}

TEST(BenchStep, PrintsTextForMixedLengthsWithDropout) {
  BenchStepOptions options = SmallBench();
  options.mixed_length = true;
  options.dropout = 0.1;
  options.encoder_layers = 1;
  options.repeats = 1;
  options.json = false;
  std::ostringstream out;
  InProcessWorld world(1);
  const absl::Status status = world.Run([&](Communicator& communicator) {
    PrepareComputeThread();
    return RunBenchStep(options, communicator, Stream::Cpu(2), out);
  });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(out.str(), AllOf(HasSubstr("target tokens/s"), HasSubstr("GEMM limit"), HasSubstr("share"),
                               HasSubstr("plan equal")));
}

nlohmann::json MeasureOnDevice(const BenchStepOptions& options) {
  std::ostringstream out;
  InProcessWorld world(1);
  const absl::Status status = world.Run([&](Communicator& communicator) {
    PrepareComputeThread();
    const std::unique_ptr<Device> device = testing::MakeTestDevice(3);
    return RunBenchStep(options, communicator, Stream::On(*device, 1), out);
  });
  EXPECT_TRUE(status.ok()) << status;
  return status.ok() ? nlohmann::json::parse(out.str()) : nlohmann::json();
}

BenchStepOptions SmallBenchOnDevice() {
  BenchStepOptions options = SmallBench();
  options.tokens = 8;
  options.length = 4;
  options.encoder_layers = 1;
  options.repeats = 1;
  return options;
}

TEST(BenchStep, CountsADevicesLaunchesWithAndWithoutGraphs) {
  BenchStepOptions options = SmallBenchOnDevice();
  options.limit = false;
  const nlohmann::json with_graphs = MeasureOnDevice(options);
  options.graphs = GraphMode::kOff;
  const nlohmann::json without = MeasureOnDevice(options);
  const double graphs = with_graphs["launches"][0], eager = with_graphs["eager_launches"][0];
  EXPECT_GT(graphs, 0);
  EXPECT_LT(graphs, eager - 50);
  EXPECT_EQ(without["launches"][0], eager);
  EXPECT_EQ(with_graphs["eager_step_seconds"].size(), 1u);
}

TEST(BenchStep, ADevicesLimitIsTheLinearLayersProducts) {
  for (const int recompute_every : {0, 2}) {
    BenchStepOptions options = SmallBenchOnDevice();
    options.recompute_every = recompute_every;
    options.micro_batches = 3;  // of one shape: the third is launched as the second's graph
    const nlohmann::json json = MeasureOnDevice(options);
    EXPECT_DOUBLE_EQ(json["gemm_flops"].get<double>(), 3 * LinearFlops(options, recompute_every > 0));
    EXPECT_EQ(json["gemm_limit_ways"].size(), 2u);
    double fastest = INFINITY;
    for (const auto& [way, seconds] : json["gemm_limit_ways"].items())
      fastest = std::min(fastest, seconds[0].get<double>());
    EXPECT_EQ(json["gemm_limit_seconds"], fastest);
    EXPECT_DOUBLE_EQ(json["gemm_tflops_per_second"].get<double>(), 1e-12 * json["gemm_flops"].get<double>() / fastest);
    EXPECT_GT(json["share_of_gemm_limit"].get<double>(), 0);
  }
}

// Longer sentences than a micro-batch holds: it would measure shorter ones than it says.
TEST(BenchStep, RefusesWidthsThatHeadsDoNotDivideAndTooLongSentences) {
  const auto refused = [](const BenchStepOptions& options) {
    std::ostringstream out;
    InProcessWorld world(1);
    return world.Run([&](Communicator& c) { return RunBenchStep(options, c, Stream::Cpu(1), out); });
  };
  BenchStepOptions options = SmallBench();
  options.heads = 3;
  EXPECT_EQ(refused(options).code(), absl::StatusCode::kInvalidArgument);
  options = SmallBench();
  options.length = options.tokens + 1;
  EXPECT_EQ(refused(options).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused(options).message(),
            "--length 65 is more than --tokens 64, the tokens of a micro-batch; give at most these");
}

}  // namespace
}  // namespace hadal
