#include "tools/report/run_summary.h"

#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/recorded_run.h"
#include "tests/support/temporary_directory.h"
#include "tools/report/summary.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Of the default 6L-6L model: every sublayer 1 ms forward and 2 ms back.
std::string WriteProfile(const std::string& directory, int source_vocabulary = 100) {
  std::string text = absl::StrCat(
      "processor: \"a processor\" gflops: 100 process_bytes: 50000000\n"
      "model { d_model: 512 d_ff: 2048 heads: 8 source_vocabulary: ",
      source_vocabulary, " target_vocabulary: 100 sublayers: 33 parameters: 1",
      source_vocabulary == 0 ? " frame_width: 80 front_end_channels: 1024" : "",
      " }\n"
      "capacities { source_tokens: 1024 target_tokens: 1024 source_rows: 1000 target_rows: 1000\n");
  for (const char* kind : {"source_embedding", "encoder_self_attention", "encoder_feed_forward", "target_embedding",
                           "decoder_self_attention", "cross_attention", "decoder_feed_forward", "output_head"}) {
    absl::StrAppend(&text, "  sublayers { kind: \"", kind, "\" forward_ms: 1 backward_ms: 2 }\n");
  }
  const std::string path = JoinPath(directory, "profile.textproto");
  std::ofstream(path) << text << "}\n";
  return path;
}

class RunPredictionTest : public testing::Test {
 protected:
  const TemporaryDirectory directory_;
  const std::string run_ = directory_ / "run";
};

TEST_F(RunPredictionTest, StandsBesideWhatWasMeasured) {
  WriteRecordedRun(run_, {.tokens = 8 * 1024, .stages = {{.forward_seconds = 0.3, .backward_seconds = 0.6}}});
  const auto report = MakeSummary({run_}, {.profile = WriteProfile(directory_.path())}).value();
  ASSERT_EQ(report.predictions.size(), 1u);
  const RunPrediction& prediction = report.predictions.front();
  const double step = 8 * (2 * 6 + 3 * 6 + 3) * 0.003;  // micro-batches, sublayers, seconds
  EXPECT_NEAR(prediction.layout.step_seconds, step, 1e-9);
  EXPECT_NEAR(prediction.measured_seconds, 0.9, 1e-9);
  EXPECT_NEAR(prediction.StepError(), step / 0.9 - 1, 1e-9);
  EXPECT_NEAR(prediction.roofline_share, step / 0.9, 1e-9);
  EXPECT_GT(prediction.utilisation, 0);
  EXPECT_GT(prediction.predicted_bytes, 50000000);
  EXPECT_THAT(SummaryToText(report), AllOf(HasSubstr("predicted (ms)     792.0"),
                                           HasSubstr("measured (ms)           900.0"), HasSubstr("-12.0%")));
  const auto json = nlohmann::json::parse(SummaryToJson(report));
  EXPECT_NEAR(json["runs"][0]["prediction"]["predicted_step_seconds"].get<double>(), step, 1e-9);
}

// As many tokens in as long a step, on twice the ranks.
TEST_F(RunPredictionTest, EveryRankCountsInTheUtilisation) {
  const StageTimes stage{.forward_seconds = 0.3, .backward_seconds = 0.6};
  WriteRecordedRun(directory_ / "one", {.tokens = 8 * 1024, .stages = {stage}});
  WriteRecordedRun(directory_ / "two", {.tokens = 8 * 1024, .stages = {stage, stage}});
  const auto report =
      MakeSummary({directory_ / "one", directory_ / "two"}, {.profile = WriteProfile(directory_.path())}).value();
  const RunPrediction &one = report.predictions.at(0), &two = report.predictions.at(1);
  EXPECT_NEAR(two.utilisation, one.utilisation / 2, 1e-9 * one.utilisation);
  EXPECT_NEAR(two.roofline_share, one.roofline_share / 2, 1e-9);
}

// The corpus's width is not in the config of a run of speech, but in its record.
TEST_F(RunPredictionTest, TheFrontEndOfSpeechIsThere) {
  const CostFiles costs{.profile = WriteProfile(directory_.path(), /*source_vocabulary=*/0)};
  RecordedRun run{.frame_width = 80, .stages = {{.forward_seconds = 1}}};
  WriteRecordedRun(directory_ / "recorded", run);
  run.config = "model { frame_width: 80 }";
  run.frame_width = 0;
  WriteRecordedRun(directory_ / "configured", run);
  const auto report = MakeSummary({directory_ / "recorded", directory_ / "configured"}, costs).value();
  ASSERT_EQ(report.predictions.size(), 2u);
  EXPECT_EQ(report.predictions[0].predicted_bytes, report.predictions[1].predicted_bytes);
  EXPECT_EQ(report.predictions[0].utilisation, report.predictions[1].utilisation);
}

TEST_F(RunPredictionTest, WithoutAProfileThereIsNone) {
  WriteRecordedRun(directory_.path(), {.stages = {{.forward_seconds = 1}}});
  const auto report = MakeSummary({directory_.path()}).value();
  EXPECT_TRUE(report.predictions.empty());
  EXPECT_THAT(SummaryToText(report), HasSubstr("No profile was given"));
  EXPECT_FALSE(MakeSummary({directory_.path()}, {.profile = "no such file"}).ok());
}

// Each of two stages has 8 micro-batches of the same number of sublayers; the second takes half as long again.
TEST_F(RunPredictionTest, ComputeBeyondTheProfileIsACauseOfItsOwn) {
  const CostFiles costs{.profile = WriteProfile(directory_.path())};
  const std::string one = directory_ / "one", two = directory_ / "two";
  const double full = 8 * 33 * 0.001;  // forward of the whole model at full speed; backward takes twice that
  WriteRecordedRun(one, {.stages = {{.forward_seconds = full, .backward_seconds = 2 * full}}});
  const auto alone = MakeSummary({one}, costs).value();
  EXPECT_NEAR(alone.summaries[0].parts->slower, 0, 1e-9);
  const std::vector<ComputeCosts>& whole = alone.predictions[0].compute;
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_NEAR(whole[0].forward, full, 1e-9);
  EXPECT_NEAR(whole[0].backward, 2 * full, 1e-9);

  // The planner's cut, then the second stage slowed; a tenth of the first one's compute had no core, and is not slow
  // compute.
  WriteRecordedRun(two, {.stages = {{.forward_seconds = 1}, {.forward_seconds = 1}}});
  const auto cut = MakeSummary({two}, costs).value();
  const std::vector<ComputeCosts> stages = cut.predictions[0].compute;
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_NEAR(stages[0].sum() + stages[1].sum(), 3 * full, 1e-9);
  const double no_core = 0.1 * stages[0].sum(), slowed = 0.5 * stages[1].sum();
  WriteRecordedRun(
      two, {.stages = {{.forward_seconds = stages[0].forward + no_core,
                        .backward_seconds = stages[0].backward,
                        .wait_seconds = stages[1].sum() + slowed - stages[0].sum() - no_core,
                        .core_wait_seconds = no_core},
                       {.forward_seconds = 1.5 * stages[1].forward, .backward_seconds = 1.5 * stages[1].backward}}});
  const auto report = MakeSummary({one, two}, costs).value();
  const TimeParts& parts = *report.summaries[1].parts;
  EXPECT_NEAR(parts.slower, slowed / 2, 1e-9);
  EXPECT_NEAR(parts.core_wait, no_core / 2, 1e-9);
  EXPECT_NEAR(parts.forward, full / 2, 1e-9);
  EXPECT_NEAR(parts.sum(), report.summaries[1].step_seconds, 1e-9);
  EXPECT_NEAR(report.summaries[1].beyond_costs[0], 0, 1e-9);
  EXPECT_NEAR(report.summaries[1].beyond_costs[1], 0.5, 1e-9);
  ASSERT_TRUE(report.scaling.has_value());
  const ScalingRow& row = report.scaling->rows[1];
  EXPECT_NEAR(row.causes.sum(), 1 - row.efficiency, 1e-9);
  EXPECT_NEAR(row.causes.slower, slowed / 2 / row.step_seconds, 1e-9);
  EXPECT_NEAR(row.causes.forward, 0, 1e-9);
  EXPECT_THAT(DescribeLoss(row, report.summaries[1]), HasSubstr("stage 1 computes 50% longer than predicted"));
  EXPECT_THAT(SummaryToText(report), HasSubstr("compute slower than profiled"));
}

// One thread's profile at full speed on two threads takes half the time.
TEST_F(RunPredictionTest, ThreadsBeyondTheProfilesCountAsThatMuchFaster) {
  const double full = 8 * 33 * 0.003;
  WriteRecordedRun(run_, {.threads = 2, .stages = {{.forward_seconds = 0.2 * full, .backward_seconds = 0.4 * full}}});
  const auto report = MakeSummary({run_}, {.profile = WriteProfile(directory_.path())}).value();
  EXPECT_NEAR(report.summaries[0].parts->slower, 0.1 * full, 1e-9);
}

TEST_F(RunPredictionTest, ARunThatKeptItsCostsNeedsNoFile) {
  WriteRecordedRun(run_, {.stages = {{.forward_seconds = 0.3, .backward_seconds = 0.6}}});
  ASSERT_TRUE(StoreCosts({.profile = WriteProfile(directory_.path())}, run_).ok());
  const auto report = MakeSummary({run_}).value();
  EXPECT_EQ(report.predictions.size(), 1u);
  EXPECT_EQ(report.no_predictions, "");
  // What it kept may not fit what it did: said, not fatal.
  ASSERT_TRUE(ReplaceFile(JoinPath(run_, "profile.textproto"), "nonsense", "test").ok());
  const auto without = MakeSummary({run_}).value();
  EXPECT_TRUE(without.predictions.empty());
  EXPECT_THAT(without.no_predictions, HasSubstr("profile.textproto"));
}

TEST_F(RunPredictionTest, AMachinesDescriptionIsEnough) {
  const std::string machine = directory_ / "machine";
  WriteRecordedRun(run_, {.vocabulary = 100, .stages = {{.forward_seconds = 0.3, .backward_seconds = 0.6}}});
  std::ofstream(machine) << "memory_gib: 8 memory_gb_per_second: 20 fp32 { peak_tflops: 0.1 }";
  const auto report = MakeSummary({run_}, {.machine = machine}).value();
  const RunPrediction& prediction = report.predictions.front();
  EXPECT_GT(prediction.layout.step_seconds, 0);
  EXPECT_NEAR(report.summaries[0].parts->slower, 0.9 - prediction.compute[0].sum(), 1e-9);
  // Without the vocabularies' sizes nothing can be planned.
  WriteRecordedRun(run_, {.stages = {{.forward_seconds = 0.3}}});
  EXPECT_THAT(std::string(MakeSummary({run_}, {.machine = machine}).status().message()), HasSubstr("vocabularies"));
}

}  // namespace
}  // namespace hadal
