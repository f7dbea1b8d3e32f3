#include "tools/config/config_loading.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "layers/method_presets.h"
#include "pipeline/schedule/schedule.h"
#include "tests/support/temporary_directory.h"
#include "tools/config/config_schema.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// The message of an error, which begins with `prefix`, behind it.
std::string Behind(const std::string& prefix, const absl::Status& status) {
  const std::string message(status.message());
  EXPECT_THAT(message, StartsWith(prefix));
  return message.substr(std::min(prefix.size(), message.size()));
}

// The error of merging `text` into an empty config, behind the file's name.
std::string ErrorOf(const std::string& text) {
  config::RunConfig config;
  const absl::Status status = MergeConfigText(text, "run.textproto", config);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
  EXPECT_EQ(config.ByteSizeLong(), 0u) << "an error leaves the config as it was";
  return Behind("run.textproto:", status);
}

// "a", "b", …: the words of the code, which the schema must list too.
std::string Quoted(const std::vector<std::string>& words) {
  return absl::StrCat("\"", absl::StrJoin(words, "\", \""), "\"");
}

std::vector<std::string> AllMethodNames() {
  std::vector<std::string> names;
  for (const ResidualMethod method : AllResidualMethods()) names.push_back(ResidualMethodName(method));
  return names;
}

// The error of `--set TEXT`, behind these words.
std::string OverrideError(const std::string& text) {
  config::RunConfig config;
  const absl::Status status = ApplyOverride(text, config);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
  return Behind("--set " + text + ": ", status);
}

config::RunConfig Merged(const std::vector<std::string>& texts) {
  config::RunConfig config;
  for (const std::string& text : texts) {
    EXPECT_EQ(MergeConfigText(text, "run.textproto", config), absl::OkStatus());
  }
  return config;
}

TEST(ConfigErrors, AnUnknownFieldGetsItsPlaceAndASuggestion) {
  EXPECT_EQ(ErrorOf("seed: 1\nmodel {\n  encoder_layer: 6\n}\n"),
            "3:3: there is no field \"encoder_layer\" in model; did you mean \"encoder_layers\"?");
  EXPECT_EQ(ErrorOf("modle { heads: 8 }"), "1:1: there is no field \"modle\"; did you mean \"model\"?");
  EXPECT_EQ(ErrorOf("model {\n  residual { method: \"deepnorm\" }\n  haeds: 8\n}"),
            "3:3: there is no field \"haeds\" in model; did you mean \"heads\"?");
  EXPECT_EQ(ErrorOf("model <\n  haeds: 8\n>"), "2:3: there is no field \"haeds\" in model; did you mean \"heads\"?");
  EXPECT_EQ(ErrorOf("dropout: 0.1"), "1:1: there is no field \"dropout\"; did you mean \"model.dropout\"?");
  EXPECT_EQ(ErrorOf("every_steps: 5"),
            "1:1: there is no field \"every_steps\"; did you mean \"validation.every_steps\" or "
            "\"checkpoint.every_steps\" or \"logging.every_steps\"?");
  EXPECT_EQ(ErrorOf("stop { banana: 1 }"),
            "1:8: there is no field \"banana\" in stop; its fields are steps, epochs, minutes, patience");
}

TEST(ConfigErrors, AWrongValueNamesItsFieldAndWhatIsAllowed) {
  EXPECT_EQ(ErrorOf("model {\n  heads: many\n}"), "2:10: model.heads: expected an integer in [1, 1024], got many");
  EXPECT_EQ(ErrorOf("model { heads: 4.5 }"), "1:16: model.heads: expected an integer in [1, 1024], got 4.5");
  EXPECT_EQ(ErrorOf("model { heads: \"8\" }"), "1:16: model.heads: expected an integer in [1, 1024], got \"8\"");
  EXPECT_EQ(ErrorOf("model { heads: 99999999999 }"),
            "1:16: model.heads: expected an integer in [1, 1024], got 99999999999");
  EXPECT_EQ(ErrorOf("model { dropout: \"x\" }"), "1:18: model.dropout: expected a number in [0, 0.99], got \"x\"");
  EXPECT_EQ(ErrorOf("checkpoint {\n save_at_end: maybe\n}"),
            "2:15: checkpoint.save_at_end: expected true or false, got maybe");
  EXPECT_EQ(ErrorOf("seed: -1"), "1:7: seed: expected an integer from 0 to 18446744073709551615, got -1");
  EXPECT_EQ(ErrorOf("pipeline { split: [1, two] }"),
            "1:23: pipeline.split: expected a list of integers in [1, 65535], got two");
  EXPECT_EQ(ErrorOf("model { heads: }"), "1:16: model.heads: expected an integer in [1, 1024], got nothing");
  EXPECT_EQ(ErrorOf("model { residual { method: deepnorm } }"),
            absl::StrCat("1:28: model.residual.method: expected one of ", Quoted(AllMethodNames()),
                         ", got deepnorm; put it in quotes: \"deepnorm\""));
  EXPECT_EQ(ErrorOf("pipeline { schedule: 1f1b }"),
            absl::StrCat("1:22: pipeline.schedule: expected one of ", Quoted(AllScheduleNames()),
                         ", got 1f1b; put it in quotes: \"1f1b\""));
  EXPECT_EQ(ErrorOf("model {\n  residual { method: \"deepnrom\" }\n}"),
            absl::StrCat("2:14: model.residual.method = \"deepnrom\" is not allowed; it must be one of ",
                         Quoted(AllMethodNames()), "; did you mean \"deepnorm\"?"));
  EXPECT_EQ(ErrorOf("model {\n  dropout: 1.5\n}"),
            "2:3: model.dropout = 1.5 is not allowed; it must be a number in [0, 0.99]");
  EXPECT_THAT(ErrorOf("model { dropout: nan }"), HasSubstr("model.dropout = nan is not allowed"));
  EXPECT_THAT(ErrorOf("optimizer { clip_norm: inf }"), HasSubstr("it must be a number in [0, inf)"));
  EXPECT_THAT(ErrorOf("optimizer { epsilon: 0 }"), HasSubstr("it must be a number in (0, 1]"));
  EXPECT_THAT(ErrorOf("data { sampling_temperature: [1, 0] }"),
              HasSubstr("it must be a list of numbers in [0.001, inf)"));
  EXPECT_EQ(ErrorOf("pipeline { split: [4, 0] }"),
            "1:12: pipeline.split = 0 is not allowed; it must be a list of integers in [1, 65535]");
  EXPECT_EQ(ErrorOf("model { heads: 0 }\nbatch { micro_batches: 0 }"),
            "1:9: model.heads = 0 is not allowed; it must be an integer in [1, 1024]\n"
            "run.textproto:2:9: batch.micro_batches = 0 is not allowed; it must be an integer in [1, 65536]");
}

TEST(ConfigErrors, BrokenStructureIsNamedByItsPlace) {
  EXPECT_EQ(ErrorOf("model { heads: 8 heads: 4 }"), "1:23: model.heads is given twice in this file");
  EXPECT_EQ(ErrorOf("learning_rate { warmup_updates: 5 warmup_fraction: 0.1 }"),
            "1:50: learning_rate.warmup_fraction: a file gives only one of warmup_updates, warmup_fraction");
  EXPECT_EQ(ErrorOf("model { heads: 8"), "1:17: the file ends before a group is closed; a \"}\" is missing");
  EXPECT_EQ(ErrorOf("model { heads: 8 } }"), "1:20: expected the name of a field, got: }");
  EXPECT_EQ(ErrorOf("model { heads: 8 9 }"), "1:18: after model.heads: expected the name of a field, got: 9");
  EXPECT_EQ(ErrorOf("model: 8"), "1:8: model is a group; write model { … }");
  EXPECT_EQ(ErrorOf("seed 5"), "1:6: after seed: Expected \":\", found \"5\".");
  EXPECT_EQ(ErrorOf("model { heads: [1, 2] }"), "1:16: model.heads: expected an integer in [1, 1024], got [");
  EXPECT_THAT(ErrorOf("data { train: \"abc }"), HasSubstr("1:21: after data.train: Unexpected end of string"));
  EXPECT_EQ(ErrorOf("seed: 1\nmodel { é: 8 }"), "2:9: a non-ASCII character is outside quotes and comments");
}

TEST(ConfigMerge, LaterFileOverridesFieldByField) {
  const config::RunConfig config =
      Merged({"model { heads: 8 d_ff: 64 } seed: 1", "model { heads: 4 residual { method: \"pre_ln\" } }"});
  EXPECT_EQ(config.model().heads(), 4);
  EXPECT_EQ(config.model().d_ff(), 64);
  EXPECT_EQ(config.seed(), 1u);
  EXPECT_EQ(config.model().residual().method(), "pre_ln");
  EXPECT_FALSE(config.model().has_d_model()) << "presence survives merging";
}

TEST(ConfigMerge, ListsAreReplaced) {
  EXPECT_THAT(Merged({"pipeline { split: [3, 5] }", "pipeline { split: 7 split: 9 }"}).pipeline().split(),
              ElementsAre(7, 9));
  EXPECT_THAT(Merged({"pipeline { split: [3, 5] }", "pipeline { chunks: 2 }"}).pipeline().split(), ElementsAre(3, 5));
  EXPECT_THAT(Merged({"pipeline { split: [3, 5] }", "pipeline { split: [] }"}).pipeline().split(), IsEmpty());
}

TEST(ConfigMerge, LaterOfTwoExclusiveFieldsStays) {
  config::RunConfig config = Merged({"learning_rate { warmup_fraction: 0.1 }", "learning_rate { warmup_updates: 50 }"});
  EXPECT_EQ(config.learning_rate().warmup_updates(), 50);
  EXPECT_FALSE(config.learning_rate().has_warmup_fraction());
  ASSERT_TRUE(ApplyOverride("learning_rate.warmup_fraction=0.2", config).ok());
  EXPECT_FALSE(config.learning_rate().has_warmup_updates());
}

TEST(ConfigMerge, CommentsAndEmptyFilesAreFine) {
  EXPECT_EQ(Merged({"# nothing\n", "", "seed: 3 # three\n"}).seed(), 3u);
}

TEST(ConfigOverride, SetsEveryType) {
  config::RunConfig config;
  for (const char* text : {"model.heads=4", "stop.steps=4000000000", "seed=18446744073709551615",
                           "learning_rate.peak=2.5e-4", "checkpoint.save_at_end=false", "pipeline.schedule=gpipe",
                           "data.train=a b=c", "pipeline.split=3,7", "data.sampling_temperature=[1, 2.5]",
                           "model.residual.encoder.value_gain = 0.5", "pipeline.recompute_auto=true"}) {
    EXPECT_EQ(ApplyOverride(text, config), absl::OkStatus());
  }
  EXPECT_EQ(config.model().heads(), 4);
  EXPECT_EQ(config.stop().steps(), 4000000000);
  EXPECT_EQ(config.seed(), 18446744073709551615u);
  EXPECT_EQ(config.learning_rate().peak(), 2.5e-4);
  EXPECT_TRUE(config.checkpoint().has_save_at_end());
  EXPECT_FALSE(config.checkpoint().save_at_end());
  EXPECT_EQ(config.pipeline().schedule(), "gpipe");
  EXPECT_EQ(config.data().train(), "a b=c");
  EXPECT_THAT(config.pipeline().split(), ElementsAre(3, 7));
  EXPECT_THAT(config.data().sampling_temperature(), ElementsAre(1, 2.5));
  EXPECT_EQ(config.model().residual().encoder().value_gain(), 0.5);
  EXPECT_TRUE(config.pipeline().recompute_auto());
}

TEST(ConfigOverride, ListsAreReplacedAndQuotesMayStay) {
  config::RunConfig config = Merged({"pipeline { split: [1, 2, 3] }"});
  ASSERT_TRUE(ApplyOverride("pipeline.split=[4, 8]", config).ok());
  EXPECT_THAT(config.pipeline().split(), ElementsAre(4, 8));
  ASSERT_TRUE(ApplyOverride("optimizer.frozen=[a.*, \"b c\"]", config).ok());
  EXPECT_THAT(config.optimizer().frozen(), ElementsAre("a.*", "b c"));
  ASSERT_TRUE(ApplyOverride("pipeline.split=", config).ok());
  EXPECT_THAT(config.pipeline().split(), IsEmpty());
  ASSERT_TRUE(ApplyOverride("pipeline.schedule=\"gpipe\"", config).ok());
  EXPECT_EQ(config.pipeline().schedule(), "gpipe");
}

TEST(ConfigOverride, Errors) {
  EXPECT_EQ(OverrideError("model.haeds=8"), "there is no field \"haeds\" in model; did you mean \"heads\"?");
  EXPECT_EQ(OverrideError("heads=8"), "there is no field \"heads\"; did you mean \"model.heads\"?");
  EXPECT_EQ(OverrideError("model.heads=x"), "model.heads: expected an integer in [1, 1024], got \"x\"");
  EXPECT_EQ(OverrideError("model.heads=0"), "model.heads = 0 is not allowed; it must be an integer in [1, 1024]");
  EXPECT_EQ(OverrideError("model.heads"), "expected FIELD=VALUE, such as model.heads=8");
  EXPECT_EQ(OverrideError("model.residual=pre_ln"),
            "model.residual is a group; set one of its fields, such as model.residual.method");
  EXPECT_EQ(OverrideError("seed.x=1"), "seed is an integer from 0 to 18446744073709551615 and has no field \"x\"");
  EXPECT_THAT(OverrideError("=1"), HasSubstr("there is no field \"\""));
  EXPECT_THAT(OverrideError("pipeline.split=[1,2"), HasSubstr("expected a list of integers"));
  EXPECT_THAT(OverrideError("pipeline.split=1,x"), HasSubstr("expected a list of integers"));
  EXPECT_THAT(OverrideError("pipeline.split=1,,2"), HasSubstr("expected a list of integers"));
  EXPECT_THAT(OverrideError("model.dropout=nan"), HasSubstr("is not allowed"));
  EXPECT_THAT(OverrideError("model.norm=rmsnorm"), HasSubstr("\"model.block.norm\""));
  EXPECT_THAT(OverrideError("model.activation=swiglu"), HasSubstr("did you mean \"model.block.activation\"?"));
  EXPECT_THAT(OverrideError("checkpoint.save_at_end=perhaps"), HasSubstr("expected true or false"));
  EXPECT_THAT(OverrideError("pipeline.schedule=f1b1"), HasSubstr("did you mean \"1f1b\"?"));
}

class ConfigFiles : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text) {
    SetContents(folder_ / name, text);
    return folder_ / name;
  }
  const TemporaryDirectory folder_;
};

TEST_F(ConfigFiles, MergeInOrderThenOverrides) {
  const std::string base = Write("base.textproto", "model { heads: 8 d_ff: 64 d_model: 32 }");
  const std::string more = Write("more.textproto", "model { heads: 4 d_ff: 128 }");
  const auto config = LoadConfig({base, more}, {"model.heads=2"}).value();
  EXPECT_EQ(config.model().heads(), 2);
  EXPECT_EQ(config.model().d_ff(), 128);
  EXPECT_EQ(config.model().d_model(), 32);
  EXPECT_THAT(std::string(LoadConfig({base, more}, {"model.heads=2", "model.heads=x"}).status().message()),
              HasSubstr("--set model.heads=x"));
}

TEST_F(ConfigFiles, AFieldsPlaceIsWhereTheFileSetsIt) {
  const std::string file =
      Write("run.textproto", "seed: 1\nmodel {\n  residual { method: \"pre_ln\" }\n}\n pipeline { split: [3] }\n");
  EXPECT_EQ(FieldPosition(file, "seed"), file + ":1:1");
  EXPECT_EQ(FieldPosition(file, "model.residual.method"), file + ":3:14");
  EXPECT_EQ(FieldPosition(file, "pipeline.split"), file + ":5:13");
  EXPECT_EQ(FieldPosition(file, "model.heads"), "") << "set elsewhere";
  EXPECT_EQ(FieldPosition(file, "optimizer.epsilon"), "") << "in a group that the file has not";
  EXPECT_EQ(FieldPosition(file, "model.haeds"), "");
  EXPECT_EQ(FieldPosition(file + "x", "seed"), "");
  EXPECT_EQ(FieldPosition(Write("broken.textproto", "seed: x"), "seed"), "");
}

TEST_F(ConfigFiles, ErrorNamesTheFileAtFault) {
  const std::string base = Write("base.textproto", "model { heads: 8 }");
  const std::string more = Write("more.textproto", "\n model { head: 4 }");
  EXPECT_EQ(LoadConfig({base, more}, {}).status().message(),
            more + ":2:10: there is no field \"head\" in model; did you mean \"heads\"?");
}

TEST_F(ConfigFiles, MissingFile) {
  const absl::Status status = LoadConfig({"nowhere/base.textproto"}, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "nowhere/base.textproto: cannot be read: No such file or directory");
}

TEST_F(ConfigFiles, WhatWindowsEditorsAddIsNoPartOfIt) {
  const auto config =
      LoadConfig({Write("windows.textproto", "\xEF\xBB\xBFseed: 11\r\nmodel { heads: 2 }\r\n")}, {}).value();
  EXPECT_EQ(config.seed(), 11u);
  for (const char* text : {"\xFF\xFEs", "\xFE\xFFs"}) {
    const std::string utf16 = Write("utf16.textproto", text);
    EXPECT_EQ(LoadConfig({utf16}, {}).status().message(), utf16 + ": is UTF-16; save it as UTF-8");
  }
  const std::string large = Write("large.textproto", std::string((4 << 20) + 1, '#'));
  EXPECT_THAT(std::string(LoadConfig({large}, {}).status().message()), HasSubstr("has more than 4194304 bytes"));
}

TEST_F(ConfigFiles, AMessageIsLoadedIntoAnEmptyOneFromAFile) {
  config::RunConfig config;
  config.set_seed(5);
  ASSERT_TRUE(LoadMessage(Write("one.textproto", "model { heads: 2 }"), config).ok());
  EXPECT_FALSE(config.has_seed());
  EXPECT_EQ(config.model().heads(), 2);
  EXPECT_EQ(LoadMessage(folder_.path(), config).message(), folder_.path() + ": is a directory; give a file in it");
}

TEST_F(ConfigFiles, ARunDirectoryIsAConfig) {
  Write("config.resolved.textproto", "seed: 11");
  const auto config = LoadConfig({folder_.path()}, {}).value();
  EXPECT_EQ(config.seed(), 11u);
}

TEST_F(ConfigFiles, APipeInThePlaceOfARunsConfigIsNotWaitedFor) {
  ASSERT_EQ(mkfifo((folder_ / "config.resolved.textproto").c_str(), 0600), 0);
  EXPECT_EQ(LoadConfig({folder_.path()}, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hadal
