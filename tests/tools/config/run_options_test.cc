#include "tools/config/run_options.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "layers/model_fields.h"
#include "tests/tools/config/parsed_config.h"
#include "tools/config/model_config.h"
#include "tools/config/resolved_config.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string ErrorOf(const std::string& text) {
  const absl::Status status = MakeRunOptions(Parsed(text)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(status.message());
}

TEST(RunOptions, WhatIsNeverUsedTakesNoMemory) {
  EXPECT_FALSE(OptionsOf("validation { bleu_sentences: 30 }").train.pipeline.decoder.has_value());
  EXPECT_EQ(OptionsOf("checkpoint { buffer_mebibytes: 3 every_steps: 0 }").train.pipeline.save_buffer_bytes, 0);
  EXPECT_EQ(OptionsOf("checkpoint { buffer_mebibytes: 3 memory_every_steps: 5 }").train.pipeline.save_buffer_bytes,
            3 << 20);
  EXPECT_EQ(OptionsOf("pipeline { recompute_every: 3 }").train.pipeline.recompute_every, 3);
}

TEST(RunOptions, AMemoryLimitAloneAsksForRecomputation) {
  const std::string alone = "pipeline { memory_limit_bytes: 3 }";
  EXPECT_TRUE(OptionsOf(alone).train.pipeline.recompute_auto);
  EXPECT_TRUE(OptionsOf(ResolvedConfigText(Parsed(alone)).value()).train.pipeline.recompute_auto);
  EXPECT_TRUE(OptionsOf("pipeline { recompute_auto: true }").train.pipeline.recompute_auto) << "to what the host has";
  for (const char* set : {"recompute_every: 0", "recompute_every: 2", "recompute_auto: false"}) {
    EXPECT_FALSE(OptionsOf(absl::StrCat("pipeline { memory_limit_bytes: 3 ", set, " }")).train.pipeline.recompute_auto);
  }
}

TEST(RunOptions, FramesAreTheCorpuss) {
  TrainOptions train = OptionsOf("data { train: \"t\" }").train;
  ASSERT_TRUE(FollowCorpus({.frame_width = 40}, train).ok());
  EXPECT_EQ(train.model.frame_width, 40);
  EXPECT_THAT(std::string(FollowCorpus({.frame_width = 80}, train).message()),
              HasSubstr("model.frame_width = 40, but the corpus data.train = \"t\" has frames of 80"));
  EXPECT_THAT(std::string(FollowCorpus({}, train).message()), HasSubstr("is text"));
}

TEST(RunOptions, TheFormOfTheTextIsTheCorpuss) {
  TrainOptions train = OptionsOf("data { train: \"t\" } validation { every_steps: 1 bleu_sentences: 2 }").train;
  CorpusManifest corpus;
  corpus.tags = "m2m100";
  corpus.form = {.start_token = 6, .end_token = 7, .reserved_ids = false, .document_mask = true};
  ASSERT_TRUE(FollowCorpus(corpus, train).ok());
  EXPECT_TRUE(train.pipeline.decoder->prefixes) << "a translation begins with its language's tag";
  EXPECT_EQ(train.model.start_token, 6);
  EXPECT_EQ(train.model.end_token, 7);
  EXPECT_TRUE(train.model.document_mask && !train.model.reserved_ids);
}

TEST(RunOptions, FractionsOfTheStepsBecomeUpdates) {
  const TrainOptions train = OptionsOf(R"(stop { steps: 1001 } learning_rate { warmup_fraction: 0.25 }
    model { residual { method: "branchnorm" growth_fraction: 0.0001 } })")
                                 .train;
  EXPECT_EQ(train.rate.warmup_updates, 250);
  EXPECT_EQ(train.model.branch_growth_updates, 1) << "at least one update";
  EXPECT_EQ(OptionsOf("stop { steps: 1003 } learning_rate { warmup_fraction: 0.25 }").train.rate.warmup_updates, 251)
      << "rounded";
  EXPECT_EQ(OptionsOf("learning_rate { warmup_fraction: 0 }").train.rate.warmup_updates, 0);
  EXPECT_EQ(ErrorOf("learning_rate { warmup_fraction: 0.25 } stop { minutes: 5 }"),
            "learning_rate.warmup_fraction = 0.25 is a fraction of stop.steps, which is not set; set it, or give "
            "updates instead");
  EXPECT_THAT(ErrorOf("model { residual { method: \"branchnorm\" growth_fraction: 0.5 } }"),
              HasSubstr("growth_fraction = 0.5"));
}

TEST(RunOptions, ImpossibleCombinationsAreRefused) {
  EXPECT_EQ(ErrorOf("model { d_model: 64 heads: 7 }"),
            "model.heads = 7 is not allowed; it must divide model.d_model = 64");
  EXPECT_EQ(ErrorOf("pipeline { chunks: 2 }"),
            "pipeline.chunks = 2 is not allowed with pipeline.schedule = \"1f1b\"; set chunks to 1 or schedule to "
            "\"interleaved_1f1b\"");
  EXPECT_THAT(ErrorOf("pipeline { chunks: 2 schedule: \"gpipe\" }"), HasSubstr("pipeline.schedule = \"gpipe\""));
  EXPECT_THAT(ErrorOf("pipeline { split: [5, 5] }"),
              HasSubstr("pipeline.split: entry 2 = 5 is not allowed; entries must ascend and lie in [1, 32]"));
  EXPECT_THAT(ErrorOf("pipeline { split: [33] }"), HasSubstr("entry 1 = 33"));
  EXPECT_EQ(ErrorOf("pipeline { stages: 3 split: [5] }"), "pipeline.split has 1 entries; 3 stages of 1 chunks need 2");
  EXPECT_EQ(OptionsOf("pipeline { stages: 0 split: [5] }").train.pipeline.split.size(), 1u)
      << "ranks decide the stages";
  EXPECT_THAT(ErrorOf("learning_rate { schedule: \"polynomial\" }"), HasSubstr("ends at stop.steps, which is not set"));
  EXPECT_THAT(ErrorOf("learning_rate { schedule: \"polynomial\" end_rate: 1 } stop { steps: 5000 }"),
              HasSubstr("learning_rate.end_rate = 1 is not allowed; it must be at most"));
  EXPECT_THAT(ErrorOf("learning_rate { schedule: \"cosine\" }"), HasSubstr("\"cosine\" ends at stop.steps"));
  for (const char* decay : {"", "decay_updates: 1001"}) {
    const std::string text = absl::StrCat("learning_rate { schedule: \"wsd\" ", decay, "} stop { steps: 5000 }");
    EXPECT_THAT(ErrorOf(text), HasSubstr("needs a decay of 1 to 1000 updates")) << decay;
  }
  EXPECT_EQ(OptionsOf("learning_rate { schedule: \"wsd\" decay_fraction: 0.2 } stop { steps: 5000 }")
                .train.rate.decay_updates,
            1000);
  EXPECT_THAT(ErrorOf("learning_rate { peak: 1e-3 warmup_initial_rate: 1e-2 }"),
              HasSubstr("learning_rate.warmup_initial_rate = 0.01 is not allowed; it must be at most"));
  const std::string no_warmup = "schedule: \"constant\" warmup_updates: 0 peak: 1e-3 warmup_initial_rate: 1e-2";
  EXPECT_EQ(OptionsOf(absl::StrCat("learning_rate { ", no_warmup, " }")).train.rate.warmup_updates, 0);
}

TEST(RunOptions, ValuesSetByCodeAreCheckedToo) {
  config::RunConfig config;
  config.mutable_batch()->set_micro_batches(0);
  EXPECT_EQ(MakeRunOptions(config).status().message(),
            "batch.micro_batches = 0 is not allowed; it must be an integer in [1, 65536]");
  config.clear_batch();
  config.mutable_model()->mutable_block()->set_window(-1);
  EXPECT_THAT(MakeRunOptions(config).status().message(), HasSubstr("model.block.window = -1 is not allowed"));
}

TEST(RunOptions, WarnsWhenTheRunEndsInsideWarmUpOrGrowth) {
  EXPECT_THAT(OptionsOf("stop { steps: 100 }").warnings,
              ElementsAre(HasSubstr("the run ends inside the warm-up: stop.steps = 100, warm-up = 4000 updates")));
  EXPECT_THAT(OptionsOf("stop { steps: 100 } learning_rate { warmup_updates: 99 }").warnings, IsEmpty());
  EXPECT_THAT(OptionsOf("stop { steps: 100 } learning_rate { warmup_updates: 100 }").warnings,
              ElementsAre(HasSubstr("inside the warm-up")));
  EXPECT_THAT(
      OptionsOf("stop { steps: 100 } learning_rate { warmup_updates: 0 } model { residual { method: \"branchnorm\" } }")
          .warnings,
      ElementsAre(HasSubstr("before the branch gain is 1: stop.steps = 100, T = 4000 updates")));
  EXPECT_THAT(OptionsOf("learning_rate { end_rate: 1e-5 }").warnings,
              ElementsAre("learning_rate.schedule = \"inverse_sqrt\" does not use learning_rate.end_rate"));
  for (const char* schedule : {"polynomial", "cosine", "wsd"}) {
    EXPECT_THAT(OptionsOf(absl::StrCat("stop { steps: 100 } learning_rate { end_rate: 1e-5 decay_updates: 9 "
                                       "warmup_updates: 9 schedule: \"",
                                       schedule, "\" }"))
                    .warnings,
                IsEmpty());
  }
  EXPECT_THAT(OptionsOf("data { validation: \"v\" }").warnings, ElementsAre(HasSubstr("nothing is validated")));
  EXPECT_THAT(OptionsOf("data { validation: \"v\" } validation { every_steps: 0 }").warnings, IsEmpty());
  EXPECT_THAT(OptionsOf("stop { minutes: 1 }").warnings, IsEmpty()) << "nobody knows how many updates a minute holds";
  EXPECT_THAT(OptionsOf("stop { steps: 100 } learning_rate { schedule: \"t_fixup\" warmup_updates: 4000 }").warnings,
              ElementsAre(HasSubstr("has no warm-up")));
}

TEST(RunOptions, WarnsWhereTheStreamFades) {
  const std::string run = "stop { minutes: 1 } model { residual { method: \"b2t_no_ln\" } ";
  EXPECT_THAT(OptionsOf(run + "encoder_layers: 18 }").warnings, IsEmpty());
  EXPECT_THAT(OptionsOf(run + "encoder_layers: 60 }").warnings,
              ElementsAre(HasSubstr("the encoder's 60 layers shrink the residual stream to 1.2e-05")));
}

TEST(RunOptions, LanguageModels) {
  const RunOptions run = OptionsOf("model { encoder_layers: 0 decoder_layers: 24 } stop { minutes: 1 }");
  EXPECT_FALSE(run.train.model.has_encoder());
  EXPECT_NEAR(run.train.model.decoder.residual_gain, 2.6321, 1e-4) << "(2M)^1/4";
  EXPECT_THAT(run.warnings, IsEmpty());
  // 2 · 24 sublayers, the embedding and the head.
  EXPECT_THAT(ErrorOf("model { encoder_layers: 0 decoder_layers: 24 } pipeline { split: [50] }"),
              HasSubstr("lie in [1, 49]"));
  EXPECT_THAT(
      OptionsOf("model { encoder_layers: 0 residual { encoder { ffn_gain: 1 } } } stop { minutes: 1 }").warnings,
      ElementsAre(HasSubstr("it is not used")));
}

TEST(RunOptions, EncodersAlone) {
  const std::string text =
      "data { train: \"t\" masking { share: 0.3 replacement: \"mask\" whole_words: true } } "
      "model { encoder_layers: 24 "
      "decoder_layers: 0 } stop { minutes: 1 }";
  RunOptions run = OptionsOf(text);
  EXPECT_THAT(run.warnings, IsEmpty());
  EXPECT_NEAR(run.train.model.encoder.residual_gain, 2.6321, 1e-4) << "(2N)^1/4";
  EXPECT_TRUE(run.train.masking->only_mask);
  EXPECT_THAT(ErrorOf(text + " pipeline { split: [50] }"), HasSubstr("lie in [1, 49]"));
  CorpusManifest corpus;
  corpus.target_vocabulary.size = 100;
  EXPECT_THAT(FollowCorpus(corpus, run.train).message(), HasSubstr("prepare --monolingual --mask-token"));
  corpus.mask_token = 99;
  corpus.special_tokens = {5, 99};
  EXPECT_TRUE(FollowCorpus(corpus, run.train).ok());
  EXPECT_TRUE(run.train.masking->whole_words);
  EXPECT_EQ(run.train.masking->special, corpus.special_tokens);
  EXPECT_EQ(run.train.masking->mask_token, 99);
  EXPECT_EQ(run.train.masking->vocabulary, 100);
  run.train.validation = {.every_steps = 1, .bleu_sentences = 3};
  run.train.validation_data = "v";
  EXPECT_THAT(CheckTrainable(run.train).message(), HasSubstr("is an encoder alone"));
}

TEST(RunOptions, IterationsThatDivergeAreRefused) {
  const auto muon = [](const std::string& fields) { return "optimizer { kind: \"muon\" muon { " + fields + " } }"; };
  for (const char* diverging :
       {"coefficients: [100, 0, 0]", "coefficients: [3.4445, -4.775, 2.3]", "coefficients: [2, 0, 0] steps: 99"}) {
    EXPECT_THAT(ErrorOf(muon(diverging)), HasSubstr("optimizer.muon.coefficients diverge"));
  }
  for (const char* bounded : {"steps: 99", "coefficients: [1.5, -0.5, 0]", "coefficients: [2, 0, 0]"}) {
    OptionsOf(muon(bounded));
  }
}

TEST(CheckFieldsWithEffect, NamesTheFieldAndWhatLeavesItWithoutEffect) {
  const auto refusal = [](const std::string& text) {
    return std::string(CheckFieldsWithEffect(Parsed(text)).message());
  };
  const auto block = [&](const std::string& fields) { return refusal("model { block { " + fields + " } }"); };
  EXPECT_EQ(
      block("rotary_theta: 500"),
      "model.block.rotary_theta = 500 has no effect: model.block.positions is not \"rotary\". Leave it out, or set "
      "it to 10000, the default.");
  for (const std::string field : {"rotary_share: 0.5", "rotary_scaling: 8", "rotary_local_theta: 9 window: 3"}) {
    EXPECT_THAT(block(field), HasSubstr("model.block.positions is not \"rotary\""));
    EXPECT_EQ(block("positions: \"rotary\" " + field), "");
  }
  EXPECT_THAT(block("positions: \"rotary\" rotary_scaling_positions: 9"), HasSubstr("model.block.rotary_scaling is 1"));
  EXPECT_THAT(block("positions: \"rotary\" rotary_local_theta: 9"), HasSubstr("model.block.window is 0"));
  EXPECT_THAT(block("global_every: 3"), HasSubstr("model.block.window is 0"));
  EXPECT_EQ(block("global_every: 3 window: 3"), "");
  EXPECT_THAT(block("initial_depth_factor: true"), HasSubstr("model.block.initial_deviation is 0"));
  EXPECT_EQ(block("initial_depth_factor: true initial_deviation: 0.02"), "");
  EXPECT_THAT(refusal("optimizer { muon { steps: 4 } }"),
              HasSubstr("optimizer.muon.steps = 4 has no effect: optimizer.kind"));
  EXPECT_EQ(refusal("optimizer { muon { steps: 4 } kind: \"muon\" }"), "");
  EXPECT_THAT(refusal("learning_rate { decay_fraction: 0.2 }"), HasSubstr("schedule is not \"wsd\""));
  EXPECT_EQ(refusal("learning_rate { decay_fraction: 0.2 schedule: \"wsd\" }"), "");
  EXPECT_THAT(refusal("learning_rate { power: 2 }"), HasSubstr("schedule is not \"polynomial\""));
  EXPECT_THAT(refusal("health { loss_spike_window: 50 }"), HasSubstr("health.loss_spike_deviations is not set"));
  EXPECT_EQ(refusal("health { loss_spike_window: 50 loss_spike_deviations: 0 }"), "") << "switched off";
  for (const std::string axis : {"frequency", "time"}) {
    const std::string augment = "data { spec_augment { " + axis + "_width: 9 ";
    EXPECT_THAT(refusal(augment + "} }"), HasSubstr("data.spec_augment." + axis + "_masks is not set"));
    EXPECT_EQ(refusal(augment + axis + "_masks: 0 } }"), "");
  }
  EXPECT_THAT(refusal("model { adaptive_factor: 2 }"), HasSubstr("model.adaptive_cutoffs is not set"));
  EXPECT_THAT(refusal("data { masking { share: 0.3 } }"), HasSubstr("data.masking.share = 0.3 has no effect"));
  EXPECT_EQ(refusal("data { masking { share: 0.3 } } model { decoder_layers: 0 }"), "");
  EXPECT_EQ(refusal("optimizer { muon { steps: 5 coefficients: [] } } data { masking { share: 0.15 } }"), "")
      << "the defaults";
}

TEST(CheckTrainable, LanguageModelsHaveNoBleu) {
  TrainOptions options = OptionsOf(
                             "data { train: \"t\" validation: \"v\" } model { encoder_layers: 0 } stop { steps: 1 } "
                             "validation { every_steps: 5 }")
                             .train;
  EXPECT_TRUE(CheckTrainable(options).ok());
  options.validation.bleu_sentences = 7;
  EXPECT_THAT(CheckTrainable(options).message(), HasSubstr("is a language model"));
}

TEST(CheckTrainable, NamesWhatIsMissing) {
  TrainOptions options = OptionsOf("data { train: \"t\" } stop { steps: 1 } learning_rate { warmup_updates: 0 }").train;
  EXPECT_TRUE(CheckTrainable(options).ok());
  options.stop.patience = 2;
  EXPECT_THAT(CheckTrainable(options).message(), HasSubstr("set validation.every_steps"));
  options.validation.metric = ValidationMetric::kBleu;
  EXPECT_THAT(CheckTrainable(options).message(), HasSubstr("set validation.bleu_sentences"));
  options.validation.metric = ValidationMetric::kNll;
  options.validation.every_steps = 5;
  EXPECT_THAT(CheckTrainable(options).message(), HasSubstr("needs data.validation"));
  options.validation_data = "v";
  EXPECT_TRUE(CheckTrainable(options).ok());
  options.stop.steps = 0;
  EXPECT_THAT(CheckTrainable(options).message(), HasSubstr("the run has no limit"));
  options.stop.minutes = 1;
  EXPECT_TRUE(CheckTrainable(options).ok());
  options.stop.minutes = 0;
  options.stop.epochs = 0.5;
  EXPECT_TRUE(CheckTrainable(options).ok());
  options.train_data.clear();
  EXPECT_THAT(CheckTrainable(options).message(), HasSubstr("data.train is not set"));
}

ModelOptions ModelOf(const std::string& text) {
  ModelOptions model;
  EXPECT_EQ(ReadModel(Parsed(text).model(), model), absl::OkStatus());
  return model;
}

TEST(ModelConfig, FieldsOverrideTheMethodOneByOne) {
  const ModelOptions model = ModelOf(R"(model { encoder_layers: 100 decoder_layers: 100 residual {
    method: "deepnorm" distribution: "xavier_uniform" branch_growth: "exponential"
    encoder { norm: "pre" residual_gain: 1.5 branch_gain: 6 query_key_gain: 2 value_gain: 3 output_gain: 4 ffn_gain: 5
              cross_value_gain: 7 cross_output_gain: 8 depth_init: "from_top" embedding_gain: 9
              skip_gain: 10 layer_gain: 11 learned_branch_gain: true attention_inner_norm: true ffn_inner_norm: true
              fixup_scalars: true linear_bias: false ffn_output_factor: 12 projection_gain: 13
              omega: "constant" initial_omega: 14 combine_layers: true }
    decoder { ffn_gain: 0.25 } } })");
  const StackMethod& encoder = model.encoder;
  EXPECT_EQ(encoder.norm, NormPlacement::kPre);
  EXPECT_THAT(
      std::vector<double>({encoder.residual_gain, encoder.query_key_gain, encoder.value_gain, encoder.output_gain,
                           encoder.ffn_gain, encoder.branch_gain, encoder.cross_value_gain, encoder.cross_output_gain,
                           encoder.embedding_gain, encoder.skip_gain, encoder.layer_gain, encoder.initial_omega,
                           encoder.ffn_output_factor, encoder.projection_gain}),
      ElementsAre(1.5, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 14, 12, 13));
  EXPECT_EQ(model.encoder.depth_init, DepthInit::kFromTop);
  EXPECT_TRUE(model.encoder.learned_branch_gain && model.encoder.attention_inner_norm && model.encoder.ffn_inner_norm);
  EXPECT_TRUE(model.encoder.fixup_scalars && !model.encoder.linear_bias && model.decoder.linear_bias);
  EXPECT_EQ(model.encoder.omega, Omega::kConstant);
  EXPECT_TRUE(model.encoder.combine_layers && !model.decoder.combine_layers);
  EXPECT_EQ(model.decoder.omega, Omega::kNone);
  EXPECT_FALSE(model.encoder.attention_output_norm || model.encoder.head_scale || model.decoder.ffn_inner_norm);
  EXPECT_EQ(model.decoder.norm, NormPlacement::kPost);
  EXPECT_EQ(model.decoder.ffn_gain, 0.25);
  EXPECT_NEAR(model.decoder.value_gain, 0.1699, 1e-4) << "what is not overridden stays the method's";
  EXPECT_EQ(model.distribution, WeightDistribution::kXavierUniform);
  EXPECT_EQ(model.branch_growth, BranchGrowth::kExponential);
  EXPECT_EQ(model.branch_growth_steepness, 5) << "the growth's own";
  const std::string steeper = "model { residual { branch_growth: \"exponential\" growth_steepness: 3 } }";
  EXPECT_EQ(OptionsOf(steeper).train.model.branch_growth_steepness, 3);
}

TEST(ModelConfig, TheSchemaHasTheFieldsOfAStackAndNoOther) {
  std::set<std::string> fields, schema;
  ForEachStackField([&](const char* name, auto, FieldAge, const auto&...) { fields.insert(name); });
  const auto& descriptor = *config::StackResidual::descriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) schema.insert(descriptor.field(i)->name());
  EXPECT_EQ(schema, fields);
}

TEST(ModelConfig, TorchscaleCompatIsAboutDeepNorm) {
  const std::string model = "model { encoder_layers: 100 decoder_layers: 100 residual { torchscale_compat: true ";
  EXPECT_NEAR(ModelOf(model + "} }").encoder.ffn_gain, 0.2727, 1e-4);
  EXPECT_EQ(ModelOf(model + "encoder { ffn_gain: 0.5 } } }").encoder.ffn_gain, 0.5);
  EXPECT_THAT(ErrorOf(model + "method: \"post_ln\" } }"),
              HasSubstr("not allowed with model.residual.method = \"post_ln\""));
}

TEST(ModelConfig, APresetBackInFieldsIsThePreset) {
  for (const char* method : {"deepnorm", "normformer", "r_fixup", "dlcl_pre", "admin_closed"}) {
    const ModelOptions preset = ModelOf(absl::StrCat("model { residual { method: \"", method, "\" } }"));
    config::RunConfig overridden = Parsed("model { residual { method: \"post_ln\" } }");
    *overridden.mutable_model()->mutable_residual()->mutable_encoder() = ToStackResidual(preset.encoder);
    ModelOptions again;
    ASSERT_TRUE(ReadModel(overridden.model(), again).ok());
    EXPECT_EQ(ToStackResidual(again.encoder).SerializeAsString(), ToStackResidual(preset.encoder).SerializeAsString())
        << method;
  }
}

}  // namespace
}  // namespace hadal
