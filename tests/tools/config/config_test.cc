#include "tools/config/config.h"

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"
#include "tools/config/config_explanation.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Outcome {
  int exit_code = -1;
  std::string output;
  std::string errors;
};

// Runs `hadal ARGUMENTS…` in this process. CLI11's own refusals are exit code 2, as launch/hadal.cc maps them.
Outcome RunHadal(std::vector<std::string> arguments) {
  CLI::App app("hadal");
  Outcome outcome;
  AddConfigCommand(app, outcome.exit_code);
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes a vector from its back
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    std::cerr << error.what() << "\n";
    outcome.exit_code = 2;
  }
  outcome.output = ::testing::internal::GetCapturedStdout();
  outcome.errors = ::testing::internal::GetCapturedStderr();
  return outcome;
}

std::string Explained(const std::string& path) {
  const auto text = ExplainField(path);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.value_or("");
}

class ConfigCommand : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text) {
    SetContents(folder_ / name, text);
    return folder_ / name;
  }
  const TemporaryDirectory folder_;
};

TEST(ExplainField, GivesCommentTypeDefaultAndRange) {
  EXPECT_EQ(Explained("model.heads"),
            "model.heads  (integer)\n"
            "  Attention heads of width d_model / heads.\n"
            "\n"
            "  default: 8\n"
            "  allowed: an integer in [1, 1024]\n"
            "  on resume: a change needs --accept-changes\n");
}

TEST(ExplainField, GivesAllowedWords) {
  EXPECT_THAT(
      Explained("pipeline.schedule"),
      AllOf(HasSubstr("  Order of work on each rank:\n    \"gpipe\"             all forwards"),
            HasSubstr("default: \"1f1b\""), HasSubstr("allowed: one of \"gpipe\", \"1f1b\", \"interleaved_1f1b\""),
            HasSubstr("on resume: may change")));
}

TEST(ExplainField, NamesTheFieldItExcludes) {
  EXPECT_THAT(Explained("learning_rate.warmup_fraction"), HasSubstr("instead of: warmup_updates\n"));
  EXPECT_THAT(Explained("model.residual.encoder.value_gain"), HasSubstr("default: from model.residual.method"));
}

TEST(ExplainField, ListsTheFieldsOfAGroup) {
  EXPECT_THAT(Explained("stop"), AllOf(HasSubstr("When the run ends"),
                                       HasSubstr("\n  epochs    Passes over the training corpus"), HasSubstr("[0]")));
  EXPECT_THAT(Explained("model"), HasSubstr("\n  residual            How a sublayer joins the residual stream"));
  EXPECT_THAT(Explained(""), AllOf(HasSubstr("\n  pipeline "), HasSubstr("\n  seed ")));
}

TEST(ExplainField, SuggestsWhenMisspelt) {
  EXPECT_EQ(ExplainField("pipeline.schedul").status().message(),
            "there is no field \"schedul\" in pipeline; did you mean \"schedule\"?");
  EXPECT_EQ(ExplainField("heads").status().message(), "there is no field \"heads\"; did you mean \"model.heads\"?");
}

TEST_F(ConfigCommand, ShowPrintsTheResolvedConfig) {
  const std::string base = Write("base.textproto", "model { heads: 4 d_model: 32 } stop { steps: 5000 }");
  const std::string more = Write("more.textproto", "model { d_model: 64 }");
  const Outcome outcome =
      RunHadal({"config", "show", base, more, "--set", "model.d_ff=96", "--set", "pipeline.split=[3,7]"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("  heads: 4\n"), HasSubstr("  d_model: 64\n"), HasSubstr("  d_ff: 96\n"),
                                    HasSubstr("  split: [3, 7]\n")));
  EXPECT_THAT(outcome.errors, IsEmpty());
}

TEST_F(ConfigCommand, OverridesMayStandBeforeFiles) {
  const std::string base = Write("base.textproto", "model { heads: 4 }");
  const Outcome outcome = RunHadal({"config", "show", "--set", "model.heads=2", base});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, HasSubstr("  heads: 2\n"));
}

TEST_F(ConfigCommand, ShowWarnsOnStandardError) {
  const Outcome outcome = RunHadal({"config", "show", Write("base.textproto", "stop { steps: 10 }")});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.errors, HasSubstr("warning: the run ends inside the warm-up"));
}

TEST_F(ConfigCommand, BadConfigIsExitCodeTwo) {
  const std::string bad = Write("bad.textproto", "model { head: 4 }");
  const Outcome outcome = RunHadal({"config", "show", bad});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.errors, bad + ":1:9: there is no field \"head\" in model; did you mean \"heads\"?\n");
  EXPECT_THAT(outcome.output, IsEmpty());
  EXPECT_EQ(RunHadal({"config", "show", Write("odd.textproto", "model { heads: 7 }")}).exit_code, 2);
  EXPECT_EQ(RunHadal({"config", "show", folder_ / "none.textproto"}).exit_code, 2);
  EXPECT_EQ(RunHadal({"config", "explain", "modle"}).exit_code, 2);
  EXPECT_EQ(RunHadal({"config", "show"}).exit_code, 2);
  EXPECT_EQ(RunHadal({"config"}).exit_code, 2);
}

TEST_F(ConfigCommand, DiffSeparatesWhatAResumeAsksAbout) {
  const std::string a = Write("a.textproto", "model { heads: 4 } logging { every_steps: 5 }");
  const std::string b = Write("b.textproto", "model { heads: 2 } logging { every_steps: 6 }");
  const Outcome outcome = RunHadal({"config", "diff", a, b});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_EQ(outcome.output,
            "may change results:\n  model.heads: 4 -> 2\n"
            "do not change what is learned:\n  logging.every_steps: 5 -> 6\n");
  EXPECT_EQ(RunHadal({"config", "diff", a, a}).output, "no difference\n");
}

TEST_F(ConfigCommand, ExplainPrintsAField) {
  const Outcome outcome = RunHadal({"config", "explain", "model.d_ff"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.output, HasSubstr("default: 2048"));
  EXPECT_THAT(RunHadal({"config", "explain"}).output, HasSubstr("learning_rate"));
}

}  // namespace
}  // namespace hadal
