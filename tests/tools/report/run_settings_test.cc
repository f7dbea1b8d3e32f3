#include "tools/report/scaling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/support/recorded_run.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

// A run of six steps and 8 micro-batches on two ranks, unless `run` says otherwise.
RunRecord RunOf(const std::string& name, RecordedRun run) {
  const TemporaryDirectory directory;
  run.stages = {{.forward_seconds = 1}, {}};
  WriteRecordedRun(directory / name, run);
  RunRecord record = ReadRun(directory / name).value();
  record.directory = name;
  return record;
}
RunRecord Configured(const std::string& name, const std::string& config) { return RunOf(name, {.config = config}); }

TEST(SettingsTable, HasWhatIsNoDefaultAndWhatDiffers) {
  const RunRecord a = Configured("a", "model { d_ff: 96 }");
  const RunRecord b = RunOf("b", {.steps = 9, .config = "model { d_ff: 96 }"});
  const auto rows = SettingsTable({a, b});
  std::vector<std::string> text;
  for (const auto& row : rows) text.push_back(absl::StrCat(row.at(0), " ", row.at(1), " ", row.at(2)));
  EXPECT_THAT(text, AllOf(Contains("field a b"), Contains("model.d_ff 96 96"), Contains("stop.steps 6 9"),
                          Not(Contains(HasSubstr("model.heads")))));
  EXPECT_EQ(text.front(), "field a b");
  RunRecord unreadable = b;
  unreadable.config.clear();
  EXPECT_EQ(SettingsTable({unreadable, a}).at(1).at(1), "-");
  EXPECT_THAT(SettingsTable({unreadable}), IsEmpty());
}

TEST(DifferenceBesideLayout, LayoutBatchAndLengthAreNone) {
  EXPECT_EQ(DifferenceBesideLayout(Configured("a", ""), Configured("b", "")), "");
  EXPECT_EQ(
      DifferenceBesideLayout(RunOf("a", {.threads = 2, .replicas = 2}),
                             RunOf("b", {.steps = 9, .micro_batches = 4, .config = "checkpoint { every_steps: 7 }"})),
      "");
}

TEST(DifferenceBesideLayout, EverythingElseIsNamed) {
  EXPECT_EQ(DifferenceBesideLayout(Configured("a", "model { residual { method: \"deepnorm\" } }"),
                                   Configured("b", "model { residual { method: \"post_ln\" } }")),
            "a and b differ in model.residual.method (\"deepnorm\", \"post_ln\")")
      << "and not in the gains, which follow from it";
  EXPECT_THAT(
      DifferenceBesideLayout(Configured("a", "seed: 2 model { d_ff: 96 heads: 4 dropout: 0.3 }"), Configured("b", "")),
      AllOf(StartsWith("a and b differ in seed (2, 1), model."), EndsWith(" and 1 more")));
}

// The number of warm-up steps follows from the run's length here.
TEST(DifferenceBesideLayout, WhatFollowsFromTheLengthIsNone) {
  const std::string config = "learning_rate { warmup_fraction: 0.5 }";
  EXPECT_EQ(DifferenceBesideLayout(Configured("a", config), RunOf("b", {.steps = 60, .config = config})), "");
}

TEST(DifferenceBesideLayout, AConfigThatCannotBeReadMayDiffer) {
  RunRecord unreadable = Configured("b", "");
  unreadable.config.clear();
  EXPECT_THAT(DifferenceBesideLayout(Configured("a", ""), unreadable),
              HasSubstr("b/config.resolved.textproto cannot be read"));
}

}  // namespace
}  // namespace hadal
