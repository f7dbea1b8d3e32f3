#include "tools/config/run_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/tools/config/parsed_config.h"

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
  EXPECT_EQ(OptionsOf("pipeline { recompute_every: 3 }").train.pipeline.recompute_every, 3);
}

TEST(RunOptions, FramesAreTheCorpuss) {
  TrainOptions train = OptionsOf("data { train: \"t\" }").train;
  ASSERT_TRUE(FollowCorpus({.frame_width = 40}, train).ok());
  EXPECT_EQ(train.model.frame_width, 40);
  EXPECT_THAT(std::string(FollowCorpus({.frame_width = 80}, train).message()),
              HasSubstr("model.frame_width = 40, but the corpus data.train = \"t\" has frames of 80"));
  EXPECT_THAT(std::string(FollowCorpus({}, train).message()), HasSubstr("is text"));
}

TEST(RunOptions, FractionsBecomeUpdates) {
  const TrainOptions train = OptionsOf(R"(stop { steps: 1001 } learning_rate { warmup_fraction: 0.25 }
    model { residual { method: "branchnorm" growth_fraction: 0.0001 } })")
                                 .train;
  EXPECT_EQ(train.rate.warmup_updates, 250);
  EXPECT_EQ(train.model.branch_growth_updates, 1) << "at least one update";
  EXPECT_EQ(OptionsOf("learning_rate { warmup_fraction: 0 }").train.rate.warmup_updates, 0);
}

TEST(RunOptions, FractionsNeedSteps) {
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
  EXPECT_THAT(ErrorOf("pipeline { recompute_auto: true }"), HasSubstr("needs pipeline.memory_limit_bytes"));
  EXPECT_THAT(ErrorOf("pipeline { split: [5, 5] }"),
              HasSubstr("pipeline.split: entry 2 = 5 is not allowed; entries must ascend and lie in [1, 32]"));
  EXPECT_THAT(ErrorOf("pipeline { split: [33] }"), HasSubstr("entry 1 = 33"));
  EXPECT_EQ(ErrorOf("pipeline { stages: 3 split: [5] }"), "pipeline.split has 1 entries; 3 stages of 1 chunks need 2");
  EXPECT_THAT(ErrorOf("learning_rate { schedule: \"polynomial\" }"), HasSubstr("ends at stop.steps, which is not set"));
  EXPECT_THAT(ErrorOf("learning_rate { schedule: \"polynomial\" end_rate: 1 } stop { steps: 5000 }"),
              HasSubstr("learning_rate.end_rate = 1 is not allowed; it must be at most"));
  EXPECT_THAT(ErrorOf("learning_rate { peak: 1e-3 warmup_initial_rate: 1e-2 }"),
              HasSubstr("learning_rate.warmup_initial_rate = 0.01 is not allowed; it must be at most"));
}

TEST(RunOptions, ValuesSetByCodeAreCheckedToo) {
  config::RunConfig config;
  config.mutable_batch()->set_micro_batches(0);
  EXPECT_EQ(MakeRunOptions(config).status().message(),
            "batch.micro_batches = 0 is not allowed; it must be an integer in [1, 65536]");
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

}  // namespace
}  // namespace hadal
