#include "tools/config/config.h"

#include "gmock/gmock.h"
#include "tests/support/command_runner.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/config/parsed_config.h"
#include "tools/config/config_loading.h"
#include "tools/config/resolved_config.h"
#include "tools/config/run_options.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

CommandResult RunHadal(const std::vector<std::string>& arguments) { return RunCommand(AddConfigCommand, arguments); }

std::string Explained(const std::string& path) { return ExplainField(path).value(); }

class ConfigCommand : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text) {
    SetContents(folder_ / name, text);
    return folder_ / name;
  }
  const TemporaryDirectory folder_;
};

TEST(ExplainField, GivesCommentTypeDefaultAndWhatIsAllowed) {
  EXPECT_EQ(Explained("model.heads"),
            "model.heads  (integer)\n"
            "  Attention heads, of width d_model / heads unless block.head_width says otherwise.\n"
            "\n"
            "  default: 8\n"
            "  allowed: an integer in [1, 1024]\n"
            "  on resume: a change needs --accept-changes\n");
  EXPECT_THAT(
      Explained("pipeline.schedule"),
      AllOf(HasSubstr("  Order of work on each rank:\n    \"gpipe\"             all forwards"),
            HasSubstr("default: \"1f1b\""), HasSubstr("allowed: one of \"gpipe\", \"1f1b\", \"interleaved_1f1b\""),
            HasSubstr("on resume: may change")));
  EXPECT_THAT(Explained("learning_rate.warmup_fraction"), HasSubstr("instead of: warmup_updates\n  on resume"));
  EXPECT_THAT(Explained("model.residual.encoder.value_gain"), HasSubstr("default: from model.residual.method"));
}

TEST(ExplainField, NamesTheTypeOfASeed) { EXPECT_THAT(Explained("seed"), HasSubstr("seed  (integer)\n")); }

TEST(ExplainField, ListsTheFieldsOfAGroup) {
  EXPECT_THAT(Explained("stop"), AllOf(HasSubstr("When the run ends"),
                                       HasSubstr("\n  epochs    Passes over the training corpus"), HasSubstr("[0]")));
  EXPECT_THAT(Explained("model"), HasSubstr("\n  residual            How a sublayer is connected to the residual"));
  EXPECT_THAT(Explained(""), AllOf(HasSubstr("\n  pipeline "), HasSubstr("\n  seed ")));
  EXPECT_THAT(Explained("model.residual.encoder"),
              HasSubstr("How the initial weights of layer l = 1 ... n depend on l  ["));
}

TEST_F(ConfigCommand, ShowPrintsTheResolvedConfig) {
  const std::string base = Write("base.textproto", "model { heads: 4 d_model: 32 } stop { steps: 5000 }");
  const std::string more = Write("more.textproto", "model { d_model: 64 }");
  const CommandResult outcome =
      RunHadal({"config", "show", "--set", "model.d_ff=96", base, more, "--set", "pipeline.split=[3,7]"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("  heads: 4\n"), HasSubstr("  d_model: 64\n"), HasSubstr("  d_ff: 96\n"),
                                 HasSubstr("  split: [3, 7]\n")));
  EXPECT_THAT(outcome.err, IsEmpty());
}

TEST_F(ConfigCommand, ShowWarnsOnStandardError) {
  const CommandResult outcome = RunHadal({"config", "show", Write("base.textproto", "stop { steps: 10 }")});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("warning: the run ends inside the warm-up"));
}

TEST_F(ConfigCommand, BadConfigIsExitCodeTwo) {
  const std::string bad = Write("bad.textproto", "model { head: 4 }");
  const CommandResult outcome = RunHadal({"config", "show", bad});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.err,
            "hadal config show: " + bad + ":1:9: there is no field \"head\" in model; did you mean \"heads\"?\n");
  EXPECT_THAT(outcome.out, IsEmpty());
  EXPECT_EQ(RunHadal({"config", "explain", "modle"}).exit_code, 2);
  const std::string heads = Write("heads.textproto", "model { heads: 7 }");
  EXPECT_THAT(RunHadal({"config", "show", heads}).err, HasSubstr("\n  " + heads + ":1:9: model.heads = 7"));
  const std::string idle = Write("idle.textproto", "model { block { rotary_theta: 500 } }");
  EXPECT_THAT(RunHadal({"config", "show", idle}).err, HasSubstr("model.block.rotary_theta = 500 has no effect"));
}

TEST_F(ConfigCommand, DiffSeparatesWhatAResumeAsksAbout) {
  const std::string a = Write("a.textproto", "model { heads: 4 } logging { every_steps: 5 }");
  const std::string b = Write("b.textproto", "model { heads: 2 } logging { every_steps: 6 }");
  const CommandResult outcome = RunHadal({"config", "diff", a, b});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out,
            "may change results:\n  model.heads: 4 -> 2\n"
            "do not change what is learned:\n  logging.every_steps: 5 -> 6\n");
  EXPECT_EQ(RunHadal({"config", "diff", a, a}).out, "no difference\n");
}

TEST_F(ConfigCommand, ExplainPrintsAField) {
  const CommandResult outcome = RunHadal({"config", "explain", "model.d_ff"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("default: 2048"));
  EXPECT_THAT(RunHadal({"config", "explain"}).out, HasSubstr("learning_rate"));
  EXPECT_THAT(RunHadal({"config", "explain", "run_minutes", "--grid"}).out,
              AllOf(HasSubstr("allowed: a number in [0, inf)"), Not(HasSubstr("on resume"))));
}

std::string Resolved(const std::string& text) { return ResolvedConfigText(Parsed(text)).value(); }

std::string Diff(const std::string& before, const std::string& after) {
  return ChangesToAccept(Parsed(before), Parsed(after)).value();
}

constexpr char kFull[] = R"(
  seed: 18446744073709551615
  model { encoder_layers: 12 d_model: 64 heads: 4 dropout: 0.3 residual { method: "branchnorm" growth_fraction: 0.3
          encoder { value_gain: 0.1 } } }
  data { train: "a \"quoted\" name" }
  pipeline { split: [3, 9] recompute_every: 2 }
  learning_rate { peak: 0.00031415926535897931 warmup_fraction: 0.1 }
  stop { steps: 3000 })";

TEST(ResolvedConfig, OfTwoThatExcludeEachOtherOnlyOneIsSet) {
  const std::string text = Resolved("model { residual { growth_fraction: 0.3 } } pipeline { memory_limit_bytes: 3 }");
  EXPECT_EQ(Resolved(text), text);
  EXPECT_THAT(text, HasSubstr("# growth_updates: not set\n"));
  EXPECT_THAT(text, HasSubstr("# recompute_auto: true  (from memory_limit_bytes)\n"));
  EXPECT_THAT(Resolved("data { train: \"dätä\" }"), HasSubstr("train: \"dätä\"\n"));
}

TEST(ResolvedConfig, NamesEveryField) {
  const auto values = EffectiveValues(Parsed("")).value();
  const std::string text = Resolved("");
  for (const EffectiveValue& value : values) {
    EXPECT_THAT(text, HasSubstr(value.path.substr(value.path.rfind('.') + 1) + ": " + value.value)) << value.path;
  }
}

TEST(ResolvedConfig, LoadsAgainToTheSameTextAndOptions) {
  const std::string once = Resolved(kFull);
  EXPECT_EQ(Resolved(once), once);
  EXPECT_EQ(Resolved(Resolved("")), Resolved("")) << "every default is allowed";
  const auto differences = CompareConfigs(Parsed(kFull), Parsed(once)).value();
  EXPECT_THAT(DifferencesText(differences), IsEmpty());
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
  EXPECT_THAT(Resolved("learning_rate { schedule: \"wsd\" warmup_updates: 9 decay_fraction: 0.2 } stop { steps: 3000 } "
                       "model { residual { method: \"branchnorm\" branch_growth: \"sigmoid\" } }"),
              AllOf(HasSubstr("# decay_updates: 600  (from decay_fraction 0.2 of 3000 steps)\n"),
                    ::testing::ContainsRegex("# growth_steepness: [0-9.]+  \\(from branch_growth \"sigmoid\"\\)\n")));
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
  const auto differences = CompareConfigs(Parsed("stop { steps: 5000 }"), Parsed(after)).value();
  EXPECT_EQ(differences.size(), 24u) << DifferencesText(differences);
}

TEST(ConfigDifference, ALongerRunIsAskedAboutOnlyWhereItsLengthShapesTraining) {
  EXPECT_THAT(Diff("stop { steps: 5000 }", "stop { steps: 9000 }"), IsEmpty());
  EXPECT_THAT(Diff("batch { sum_groups: 4 }", "batch { sum_groups: 0 }"), IsEmpty()) << "the run's are taken";
  EXPECT_EQ(Diff("stop { steps: 5000 } learning_rate { warmup_fraction: 0.1 }",
                 "stop { steps: 9000 } learning_rate { warmup_fraction: 0.1 }"),
            "  learning_rate.warmup_updates: 500 (warmup_fraction 0.1 of 5000 steps) -> 900 (warmup_fraction 0.1 of "
            "9000 steps)\n");
  EXPECT_EQ(Diff("stop { steps: 5000 } learning_rate { schedule: \"polynomial\" }",
                 "stop { steps: 9000 } learning_rate { schedule: \"polynomial\" }"),
            "  stop.steps: 5000 -> 9000\n");
  EXPECT_EQ(Diff("stop { steps: 5000 } learning_rate { schedule: \"wsd\" decay_updates: 9 }",
                 "stop { steps: 9000 } learning_rate { schedule: \"wsd\" decay_updates: 9 }"),
            "  stop.steps: 5000 -> 9000\n");
  EXPECT_THAT(Diff("stop { steps: 5000 }", "stop { steps: 9000 } learning_rate { schedule: \"cosine\" }"),
              HasSubstr("  stop.steps: 5000 -> 9000\n"));
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
