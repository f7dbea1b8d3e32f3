#include "tools/plan/roofline_costs.h"

#include <gtest/gtest.h>

#include "layers/method_presets.h"

namespace hadal {
namespace {

Machine Device() {
  return {.name = "test",
          .precision = Precision::kBf16,
          .peak_flops = 100e12,
          .matmul_flops = 80e12,
          .attention_flops = 20e12,
          .matmul_units = 64,
          .matmul_tile = 128,
          .memory_bytes_per_second = 1e12,
          .kernel_seconds = 1e-6};
}

ModelPlan SmallModel(ResidualMethod method = ResidualMethod::kDeepNorm) {
  ModelOptions options{.encoder_layers = 2,
                       .decoder_layers = 3,
                       .d_model = 512,
                       .d_ff = 2048,
                       .heads = 8,
                       .source_vocabulary = 1000,
                       .target_vocabulary = 1000};
  ApplyResidualMethod(method, options);
  return ModelPlan::Make(options);
}

// 128 · 64 tiles of a side: whole waves, so that large products run at the rate.
TEST(ProductSeconds, LargeProductsRunAtTheRate) {
  const double n = 128 * 64;
  EXPECT_DOUBLE_EQ(ProductSeconds(Device(), n, n, n, 2), 2 * n * n * n / 80e12);
}

TEST(ProductSeconds, FewTilesLeaveUnitsIdleUnlessTheDepthIsSplit) {
  const Machine device = Device();
  // 65 tiles take two waves.
  EXPECT_DOUBLE_EQ(ProductSeconds(device, 65 * 128, 128, 4096, 0), 2 * ProductSeconds(device, 64 * 128, 128, 4096, 0));
  // A weight's gradient: 16 tiles of output, whose long sum splits over the 64 units; a short one cannot be split.
  EXPECT_DOUBLE_EQ(ProductSeconds(device, 512, 512, 8192, 0), 2.0 * 512 * 512 * 8192 / 80e12);
  EXPECT_DOUBLE_EQ(ProductSeconds(device, 512, 512, 512, 0), 4 * 2.0 * 512 * 512 * 512 / 80e12);
}

TEST(ProductSeconds, NoProductIsFasterThanMemoryOrAKernel) {
  const Machine device = Device();
  EXPECT_DOUBLE_EQ(ProductSeconds(device, 1, 1, 1, 2), 1e-6);
  const double rows = 1 << 20;
  EXPECT_DOUBLE_EQ(ProductSeconds(device, rows, 128, 16, 2), 2 * (rows * 16 + 16 * 128 + rows * 128) / 1e12);
}

TEST(RooflineCosts, ForwardIsRepeatedOnlyWithCheckpointingAndOnlyInLayers) {
  const auto costs = MakeRooflineCosts(Device());
  ASSERT_TRUE(costs.ok());
  const ModelPlan plan = SmallModel();
  const ActivationCapacity capacity{.source_rows = 2048, .target_rows = 1024};
  const auto plain = (*costs)->Sublayers(plan, capacity, false), repeated = (*costs)->Sublayers(plan, capacity, true);
  ASSERT_TRUE(plain.ok() && repeated.ok());
  for (size_t s = 0; s < plan.sublayers.size(); ++s) {
    EXPECT_GT((*plain)[s].forward, 0);
    EXPECT_EQ((*plain)[s].recompute, 0);
    EXPECT_EQ((*repeated)[s].forward, (*plain)[s].forward);
    EXPECT_EQ((*repeated)[s].recompute, plan.sublayers[s].layer >= 0 ? (*plain)[s].forward : 0);
    EXPECT_TRUE(plan.sublayers[s].layer < 0 || (*plain)[s].backward > (*plain)[s].forward);
  }
}

// Rows of d in fp32: 18 forward and 39 backward for four streams, of which the product of the maps has 4 and 12; norm
// and result 5 and 6.
TEST(RooflineCosts, SeveralStreamsTakeTheTripsThatTheirKernelsState) {
  const auto costs = MakeRooflineCosts(Device());
  ASSERT_TRUE(costs.ok());
  const ActivationCapacity capacity{.source_rows = 2048, .target_rows = 2048};
  const auto one = (*costs)->Sublayers(SmallModel(), capacity, false),
             four = (*costs)->Sublayers(SmallModel(ResidualMethod::kMhc), capacity, false);
  ASSERT_TRUE(one.ok() && four.ok());
  const double row = 2048 * 512 / 1e12, maps = 4 * 6, all = 4 * 512;
  const auto product = [](double m, double n, double k) { return ProductSeconds(Device(), m, n, k, 4); };
  for (const size_t s : {size_t{1}, one->size() - 2}) {
    EXPECT_NEAR((*four)[s].forward - (*one)[s].forward, (14 + 5) * 4 * row + product(2048, maps, all) - 3 * 2 * row,
                1e-12);
    EXPECT_NEAR((*four)[s].backward - (*one)[s].backward,
                (27 + 6) * 4 * row + product(2048, all, maps) + product(maps, all, 2048) - 4 * 2 * row, 1e-12);
  }
}

TEST(RooflineCosts, WithoutRatesAsksForAProfile) {
  Machine cpu = Device();
  cpu.peak_flops = 0;
  const auto costs = MakeRooflineCosts(cpu);
  EXPECT_EQ(costs.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(costs.status().message().find("bench profile"), std::string::npos);
}

}  // namespace
}  // namespace hadal
