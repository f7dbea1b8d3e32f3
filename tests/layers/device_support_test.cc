#include "layers/device_support.h"

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

// A device of which only these are asked for.
DeviceKernels Everything() {
  DeviceKernels kernels;
  kernels.head_scale_forward = [](const Stream&, const HeadScaleForwardArgs&) {};
  kernels.hyper_read_forward = [](const Stream&, const HyperReadForwardArgs&) {};
  kernels.shift_scale_forward = [](const Stream&, const ShiftScaleForwardArgs&) {};
  kernels.unfold = [](const Stream&, const UnfoldArgs&) {};
  kernels.weighted_sum_forward = [](const Stream&, const WeightedSumForwardArgs&) {};
  kernels.read_sources_forward = [](const Stream&, const ReadSourcesForwardArgs&) {};
  kernels.learned_gains = true;
  kernels.widest_row = 1024;
  kernels.widest_head = 128;
  return kernels;
}

TEST(DeviceSupportTest, ADeviceWithAllKernelsTrainsEverything) {
  for (const ResidualMethod method : AllResidualMethods()) {
    for (const Storage storage : {Storage::kFloat32, Storage::kBFloat16}) {
      ModelPlan plan = PlanOf(method);
      plan.compute_storage = storage;
      if (method == ResidualMethod::kMixLn && storage == Storage::kBFloat16) continue;  // the next test
      EXPECT_EQ(CheckDeviceSupport(plan, Everything()), absl::OkStatus()) << ResidualMethodName(method);
    }
  }
}

TEST(DeviceSupportTest, AStackOfTwoPlacementsHasNoStreamInBf16) {
  ModelPlan plan = PlanOf(ResidualMethod::kMixLn);
  plan.compute_storage = Storage::kBFloat16;
  EXPECT_THAT(std::string(CheckDeviceSupport(plan, Everything()).message()), HasSubstr("post_norm_share"));
  plan.options.encoder.post_norm_share = 0;
  EXPECT_THAT(std::string(CheckDeviceSupport(plan, Everything()).message()),
              HasSubstr("this model's decoder has Post-LN"));
  std::swap(plan.options.encoder.post_norm_share, plan.options.decoder.post_norm_share);
  EXPECT_THAT(std::string(CheckDeviceSupport(plan, Everything()).message()),
              HasSubstr("this model's encoder has Post-LN"));
}

TEST(DeviceSupportTest, AStreamInBf16KeepsNoBranchOfAThousandth) {
  ModelPlan plan = PlanOf(ResidualMethod::kKeel);
  plan.options.decoder.residual_gain = 1000;
  EXPECT_TRUE(CheckDeviceSupport(plan, Everything()).ok());
  plan.compute_storage = Storage::kBFloat16;
  EXPECT_THAT(std::string(CheckDeviceSupport(plan, Everything()).message()), HasSubstr("residual_gain is 1000"));
  plan.options.decoder.residual_gain = 64;
  plan.options.encoder.residual_gain = 65;
  EXPECT_THAT(std::string(CheckDeviceSupport(plan, Everything()).message()), HasSubstr("residual_gain is 65"));
  plan.options.encoder.residual_gain = 64;
  EXPECT_TRUE(CheckDeviceSupport(plan, Everything()).ok());
}

TEST(DeviceSupportTest, WhatIsMissingIsNamed) {
  using Kernels = DeviceKernels;
  struct Case {
    ResidualMethod method;
    const char* words;
    void (*change)(Kernels&);
    int32_t d_model = 32;
  };
  for (const Case& c :
       {Case{ResidualMethod::kReZero, "residual_norm with learned gains", [](Kernels& k) { k.learned_gains = false; }},
        {ResidualMethod::kAdmin, "residual_norm with learned gains", [](Kernels& k) { k.learned_gains = false; }},
        {ResidualMethod::kRFixup, "residual_norm with learned gains", [](Kernels& k) { k.learned_gains = false; }},
        {ResidualMethod::kNormFormer, "head_scale", [](Kernels& k) { k.head_scale_forward = nullptr; }},
        {ResidualMethod::kMhc, "hyper_connection (mHC)", [](Kernels& k) { k.hyper_read_forward = nullptr; }},
        {ResidualMethod::kAttnRes, "attention_residual (Att", [](Kernels& k) { k.read_sources_forward = nullptr; }},
        {ResidualMethod::kRFixup, "shift_scale", [](Kernels& k) { k.shift_scale_forward = nullptr; }},
        {ResidualMethod::kDlclPre, "weighted_sum (DLCL)", [](Kernels& k) { k.weighted_sum_forward = nullptr; }},
        {ResidualMethod::kPreLn, "1032 columns (the widest has 1024)", [](Kernels&) {}, 1032},
        {ResidualMethod::kSubLn, "1056 columns", [](Kernels&) {}, 264},  // its norm of d_ff
        {ResidualMethod::kPostLn, "heads of 16 columns", [](Kernels& k) { k.widest_head = 15; }}}) {
    DeviceKernels kernels = Everything();
    c.change(kernels);
    const absl::Status status = CheckDeviceSupport(PlanOf(c.method, c.d_model), kernels);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << ResidualMethodName(c.method);
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.words));
  }
  DeviceKernels kernels = Everything();
  ModelPlan of_encoder = PlanOf(ResidualMethod::kPreLn, 264);
  of_encoder.options.encoder.ffn_inner_norm = true;
  EXPECT_THAT(std::string(CheckDeviceSupport(of_encoder, kernels).message()), HasSubstr("1056 columns"));
  of_encoder.options.encoder.combine_layers = true;
  kernels.weighted_sum_forward = nullptr;
  EXPECT_THAT(std::string(CheckDeviceSupport(of_encoder, kernels).message()), HasSubstr("weighted_sum (DLCL)"));
}

TEST(DeviceSupportTest, AnAdaptiveSoftmaxNeedsACpu) {
  ModelOptions model = PlanOf(ResidualMethod::kDeepNorm).options;
  model.adaptive_cutoffs = {.ids = {10}, .count = 1};
  const absl::Status status = CheckDeviceSupport(ModelPlan::Make(model), Everything());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("model.adaptive_cutoffs"));
}

TEST(DeviceSupportTest, SpeechNeedsItsConvolutions) {
  ModelOptions model = PlanOf(ResidualMethod::kDeepNorm).options;
  model.source_vocabulary = 0, model.frame_width = 80;
  DeviceKernels kernels = Everything();
  EXPECT_TRUE(CheckDeviceSupport(ModelPlan::Make(model), kernels).ok());
  kernels.unfold = nullptr;
  EXPECT_THAT(CheckDeviceSupport(ModelPlan::Make(model), kernels).message(), HasSubstr("unfold (speech)"));
}

}  // namespace
}  // namespace hadal
