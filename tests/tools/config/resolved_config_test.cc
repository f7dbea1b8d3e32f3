#include "tools/config/resolved_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/config/parsed_config.h"
#include "tools/config/config_loading.h"
#include "tools/config/run_options.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string Resolved(const std::string& text) {
  const auto resolved = ResolvedConfigText(Parsed(text));
  EXPECT_TRUE(resolved.ok()) << resolved.status();
  return resolved.value_or("");
}

std::string Diff(const std::string& before, const std::string& after) {
  const auto text = DiffConfigs(Parsed(before), Parsed(after));
  EXPECT_TRUE(text.ok()) << text.status();
  return text.value_or("");
}

constexpr char kFull[] = R"(
  seed: 18446744073709551615
  model { encoder_layers: 12 d_model: 64 heads: 4 dropout: 0.3 residual { method: "branchnorm" growth_fraction: 0.3
          encoder { value_gain: 0.1 } } }
  data { train: "a \"quoted\" name" }
  pipeline { split: [3, 9] recompute_every: 2 }
  learning_rate { peak: 0.00031415926535897931 warmup_fraction: 0.1 }
  stop { steps: 3000 })";

TEST(ResolvedConfig, NamesEveryField) {
  const auto values = EffectiveValues(Parsed(""));
  ASSERT_TRUE(values.ok()) << values.status();
  const std::string text = Resolved("");
  for (const EffectiveValue& value : *values) {
    EXPECT_THAT(text, HasSubstr(value.path.substr(value.path.rfind('.') + 1) + ": " + value.value)) << value.path;
  }
}

TEST(ResolvedConfig, LoadsAgainToTheSameTextAndOptions) {
  const std::string once = Resolved(kFull);
  EXPECT_EQ(Resolved(once), once);
  const auto differences = CompareConfigs(Parsed(kFull), Parsed(once));
  ASSERT_TRUE(differences.ok()) << differences.status();
  EXPECT_THAT(DifferencesText(*differences), IsEmpty());
  const auto before = MakeRunOptions(Parsed(kFull)), after = MakeRunOptions(Parsed(once));
  EXPECT_EQ(before->train.seed, after->train.seed);
  EXPECT_EQ(before->train.train_data, after->train.train_data);
  EXPECT_EQ(before->train.rate.peak, after->train.rate.peak) << "numbers keep every bit";
  EXPECT_EQ(before->train.model.encoder.ffn_gain, after->train.model.encoder.ffn_gain);
  EXPECT_EQ(before->train.pipeline.split, after->train.pipeline.split);
}

TEST(ResolvedConfig, DerivedValuesAreCommentsWithTheirReason) {
  const std::string text = Resolved(kFull);
  EXPECT_THAT(text, HasSubstr("# residual_gain: 1  (from method \"branchnorm\" at 12-6 layers)\n"));
  EXPECT_THAT(text, HasSubstr("      value_gain: 0.1\n"));
  EXPECT_THAT(text, HasSubstr("# growth_updates: 900  (from growth_fraction 0.3 of 3000 steps)\n"));
  EXPECT_THAT(text, HasSubstr("# warmup_updates: 300  (from warmup_fraction 0.1 of 3000 steps)\n"));
  EXPECT_THAT(text, HasSubstr("  warmup_fraction: 0.1\n"));
  EXPECT_THAT(text, HasSubstr("  # validation: not set\n"));
  EXPECT_THAT(text, HasSubstr("  split: [3, 9]\n"));
}

TEST(ResolvedConfig, MayBeLaidUnderAnotherDepth) {
  config::RunConfig config = Parsed(Resolved("model { residual { method: \"deepnorm\" } }"));
  ASSERT_TRUE(ApplyOverride("model.encoder_layers=100", config).ok());
  ASSERT_TRUE(ApplyOverride("model.decoder_layers=100", config).ok());
  EXPECT_NEAR(MakeRunOptions(config)->train.model.encoder.residual_gain, 3.4157, 1e-4);
}

TEST(ResolvedConfig, RefusesWhatTheRunWouldRefuse) {
  EXPECT_THAT(ResolvedConfigText(Parsed("model { heads: 7 }")).status().message(), HasSubstr("must divide"));
}

TEST(ConfigDifference, ListsFieldOldAndNew) {
  EXPECT_EQ(
      Diff("model { dropout: 0.1 } data { train: \"a\" }", "model { dropout: 0.3 d_ff: 64 } data { train: \"b\" }"),
      "  model.d_ff: 2048 -> 64\n  model.dropout: 0.1 -> 0.3\n  data.train: \"a\" -> \"b\"\n");
}

TEST(ConfigDifference, ADefaultWrittenOutIsNone) {
  EXPECT_THAT(Diff("", "model { heads: 8 dropout: 0.1 } pipeline { schedule: \"1f1b\" }"), IsEmpty());
  EXPECT_THAT(Diff("stop { steps: 5000 } learning_rate { warmup_fraction: 0.1 }",
                   "stop { steps: 5000 } learning_rate { warmup_updates: 500 }"),
              IsEmpty());
}

TEST(ConfigDifference, WhatFollowsFromAnotherFieldIsListed) {
  const std::string text =
      Diff("model { residual { method: \"deepnorm\" } }", "model { residual { method: \"pre_ln\" } }");
  EXPECT_THAT(text, HasSubstr("model.residual.method: \"deepnorm\" -> \"pre_ln\"\n"));
  EXPECT_THAT(text, HasSubstr("model.residual.encoder.norm: \"post\" -> \"pre\"\n"));
  EXPECT_THAT(text, HasSubstr("model.residual.distribution: \"xavier_normal\" -> \"xavier_uniform\"\n"));
}

TEST(ConfigDifference, LayoutLimitsLoggingAndDecodingMayChange) {
  const char* const after = R"(
    pipeline { stages: 4 chunks: 2 schedule: "interleaved_1f1b" split: [1, 2, 3, 4, 5, 6, 7] outstanding_sends: 4
               recompute_every: 3 memory_limit_bytes: 5000000000 wait_timeout_seconds: 5 threads: 2 }
    stop { steps: 9000 epochs: 3 minutes: 4 patience: 5 }
    validation { every_steps: 100 bleu_sentences: 10 }
    checkpoint { every_steps: 5 keep_last: 1 keep_every: 10 save_at_end: false }
    logging { every_steps: 7 }
    decode { beam: 5 length_penalty: 1 max_length_a: 2 max_length_b: 20 })";
  EXPECT_THAT(Diff("stop { steps: 5000 }", after), IsEmpty());
  const auto differences = CompareConfigs(Parsed("stop { steps: 5000 }"), Parsed(after));
  ASSERT_TRUE(differences.ok());
  EXPECT_EQ(differences->size(), 24u) << DifferencesText(*differences);
}

TEST(ConfigDifference, ALongerRunIsAskedAboutOnlyWhereItsLengthShapesTraining) {
  EXPECT_THAT(Diff("stop { steps: 5000 }", "stop { steps: 9000 }"), IsEmpty());
  EXPECT_EQ(Diff("stop { steps: 5000 } learning_rate { warmup_fraction: 0.1 }",
                 "stop { steps: 9000 } learning_rate { warmup_fraction: 0.1 }"),
            "  learning_rate.warmup_updates: 500 (warmup_fraction 0.1 of 5000 steps) -> 900 (warmup_fraction 0.1 of "
            "9000 steps)\n");
  EXPECT_EQ(Diff("stop { steps: 5000 } learning_rate { schedule: \"polynomial\" }",
                 "stop { steps: 9000 } learning_rate { schedule: \"polynomial\" }"),
            "  stop.steps: 5000 -> 9000\n");
  EXPECT_EQ(
      Diff("stop { steps: 5000 } model { residual { method: \"branchnorm\" growth_fraction: 0.1 } }",
           "stop { steps: 9000 } model { residual { method: \"branchnorm\" growth_fraction: 0.1 } }"),
      "  model.residual.growth_updates: 500 (growth_fraction 0.1 of 5000 steps) -> 900 (growth_fraction 0.1 of 9000 "
      "steps)\n");
}

TEST(ConfigDifference, EverythingThatShapesLearningIsAskedAbout) {
  for (const char* text : {"seed: 2", "model { heads: 4 }", "batch { micro_batches: 5 }",
                           "batch { target_tokens: 500 }", "optimizer { beta2: 0.9 }", "optimizer { clip_norm: 1 }",
                           "learning_rate { peak: 0.1 }", "data { validation: \"x\" }",
                           "validation { max_sentences: 3 }", "model { residual { encoder { ffn_gain: 0.3 } } }"}) {
    EXPECT_THAT(Diff("", text), Not(IsEmpty())) << text;
  }
}

}  // namespace
}  // namespace hadal
