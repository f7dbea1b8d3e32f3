#include "tools/config/config.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/command_runner.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

CommandResult RunHadal(const std::vector<std::string>& arguments) { return RunCommand(AddConfigCommand, arguments); }

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
  EXPECT_THAT(Explained("model"), HasSubstr("\n  residual            How a sublayer is connected to the residual"));
  EXPECT_THAT(Explained(""), AllOf(HasSubstr("\n  pipeline "), HasSubstr("\n  seed ")));
}

TEST(ExplainField, AnEllipsisEndsNoSentence) {
  EXPECT_THAT(Explained("model.residual.encoder"),
              HasSubstr("How the initial weights of layer l = 1 ... n depend on l  ["));
}

TEST(ExplainField, SuggestsWhenMisspelt) {
  EXPECT_EQ(ExplainField("pipeline.schedul").status().message(),
            "there is no field \"schedul\" in pipeline; did you mean \"schedule\"?");
  EXPECT_EQ(ExplainField("heads").status().message(), "there is no field \"heads\"; did you mean \"model.heads\"?");
}

TEST_F(ConfigCommand, ShowPrintsTheResolvedConfig) {
  const std::string base = Write("base.textproto", "model { heads: 4 d_model: 32 } stop { steps: 5000 }");
  const std::string more = Write("more.textproto", "model { d_model: 64 }");
  const CommandResult outcome =
      RunHadal({"config", "show", base, more, "--set", "model.d_ff=96", "--set", "pipeline.split=[3,7]"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("  heads: 4\n"), HasSubstr("  d_model: 64\n"), HasSubstr("  d_ff: 96\n"),
                                 HasSubstr("  split: [3, 7]\n")));
  EXPECT_THAT(outcome.err, IsEmpty());
}

TEST_F(ConfigCommand, OverridesMayStandBeforeFiles) {
  const std::string base = Write("base.textproto", "model { heads: 4 }");
  const CommandResult outcome = RunHadal({"config", "show", "--set", "model.heads=2", base});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("  heads: 2\n"));
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
  EXPECT_EQ(RunHadal({"config", "show", Write("odd.textproto", "model { heads: 7 }")}).exit_code, 2);
  EXPECT_EQ(RunHadal({"config", "show", folder_ / "none.textproto"}).exit_code, 2);
  EXPECT_EQ(RunHadal({"config", "explain", "modle"}).exit_code, 2);
  EXPECT_EQ(RunHadal({"config", "show"}).exit_code, 2);
  EXPECT_EQ(RunHadal({"config"}).exit_code, 2);
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
}

}  // namespace
}  // namespace hadal
