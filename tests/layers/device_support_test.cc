#include "layers/device_support.h"

#include <utility>

#include "gmock/gmock.h"
#include "layers/method_presets.h"
#include "tests/support/tiny_plan.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;

ModelPlan PlanOf(ResidualMethod method, int32_t d_model = 32) {
  ModelOptions model = TinyModel({.encoder_layers = 2,
                                  .decoder_layers = 2,
                                  .d_model = d_model,
                                  .d_ff = 4 * d_model,
                                  .heads = 2,
                                  .max_positions = 16});
  ApplyResidualMethod(method, model);
  return ModelPlan::Make(model);
}

TEST(DeviceSupportTest, ModelsWithinTheLimitsAreTrained) {
  for (const ResidualMethod method : AllResidualMethods()) {
    for (const Storage storage : {Storage::kFloat32, Storage::kBFloat16}) {
      ModelPlan plan = PlanOf(method);
      plan.compute_storage = storage;
      if (method == ResidualMethod::kMixLn && storage == Storage::kBFloat16) continue;  // the next test
      EXPECT_EQ(CheckDeviceSupport(plan), absl::OkStatus()) << ResidualMethodName(method);
    }
  }
}

TEST(DeviceSupportTest, AStackOfTwoPlacementsHasNoStreamInBf16) {
  ModelPlan plan = PlanOf(ResidualMethod::kMixLn);
  plan.compute_storage = Storage::kBFloat16;
  EXPECT_THAT(std::string(CheckDeviceSupport(plan).message()), HasSubstr("post_norm_share"));
  plan.options.encoder.post_norm_share = 0;
  EXPECT_THAT(std::string(CheckDeviceSupport(plan).message()), HasSubstr("this model's decoder has Post-LN"));
  std::swap(plan.options.encoder.post_norm_share, plan.options.decoder.post_norm_share);
  EXPECT_THAT(std::string(CheckDeviceSupport(plan).message()), HasSubstr("this model's encoder has Post-LN"));
}

TEST(DeviceSupportTest, AStreamInBf16KeepsNoBranchOfAThousandth) {
  ModelPlan plan = PlanOf(ResidualMethod::kKeel);
  plan.options.decoder.residual_gain = 1000;
  EXPECT_TRUE(CheckDeviceSupport(plan).ok());
  plan.compute_storage = Storage::kBFloat16;
  EXPECT_THAT(std::string(CheckDeviceSupport(plan).message()), HasSubstr("residual_gain is 1000"));
  plan.options.decoder.residual_gain = 64;
  plan.options.encoder.residual_gain = 65;
  EXPECT_THAT(std::string(CheckDeviceSupport(plan).message()), HasSubstr("residual_gain is 65"));
  plan.options.encoder.residual_gain = 64;
  EXPECT_TRUE(CheckDeviceSupport(plan).ok());
}

TEST(DeviceSupportTest, ExceededLimitsAreNamed) {
  const auto refusal = [](const ModelPlan& plan) {
    const absl::Status status = CheckDeviceSupport(plan);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    return std::string(status.message());
  };
  EXPECT_THAT(refusal(PlanOf(ResidualMethod::kPreLn, 3080)), HasSubstr("3080 columns (the widest has 3072)"));
  EXPECT_THAT(refusal(PlanOf(ResidualMethod::kPostLn, 258)), HasSubstr("heads of 129 columns"));
  ModelPlan of_encoder = PlanOf(ResidualMethod::kPreLn, 16);
  of_encoder.options.encoder.ffn_inner_norm = true, of_encoder.options.d_ff = 4000;
  EXPECT_THAT(refusal(of_encoder), HasSubstr("LayerNorm over 4000 columns"));
  ModelPlan of_queries = PlanOf(ResidualMethod::kSubLn, 16);
  of_queries.options.heads = 25, of_queries.options.block.head_width = 128;
  EXPECT_THAT(refusal(of_queries), HasSubstr("LayerNorm over 3200 columns"));
  of_queries.options.decoder.attention_inner_norm = false;
  EXPECT_THAT(refusal(of_queries), HasSubstr("LayerNorm over 3200 columns"));
}

TEST(DeviceSupportTest, AnAdaptiveSoftmaxNeedsACpu) {
  ModelOptions model = PlanOf(ResidualMethod::kDeepNorm).options;
  model.adaptive_cutoffs = {.ids = {10}, .count = 1};
  const absl::Status status = CheckDeviceSupport(ModelPlan::Make(model));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("model.adaptive_cutoffs"));
}

}  // namespace
}  // namespace hadal
