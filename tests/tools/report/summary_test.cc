#include "tools/report/summary.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/support/numbered_step.h"
#include "tests/support/recorded_run.h"
#include "tests/support/temporary_directory.h"
#include "tools/plan/plan_report.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

RecordedRun TwoRanks() {
  const StageTimes times{.forward_seconds = 0.6, .backward_seconds = 1.0, .wait_seconds = 0.25};
  return {.stages = {times, times}};
}

class SummaryTest : public testing::Test {
 protected:
  // Of one run, "one".
  Summary Of(const RecordedRun& run) const {
    WriteRecordedRun(directory_ / "one", run);
    return MakeSummary({directory_ / "one"}).value();
  }

  const TemporaryDirectory directory_;
};

SummaryTable Table(const Summary& summary, const std::string& name) {
  for (SummaryTable& table : MakeTables(summary)) {
    if (table.name == name) return std::move(table);
  }
  ADD_FAILURE() << "no table " << name;
  return {.rows = {std::vector<SummaryCell>(12)}};
}

std::vector<std::vector<std::string>> TextsOf(const SummaryTable& table) {
  std::vector<std::vector<std::string>> rows;
  for (const std::vector<SummaryCell>& row : table.rows) {
    std::vector<std::string>& texts = rows.emplace_back();
    for (const SummaryCell& cell : row) texts.push_back(cell.text);
  }
  return rows;
}

// A quarter of the compute waits for a core.
TEST_F(SummaryTest, TablesHoldTheNumbersOfARunInTheirUnits) {
  const StageTimes times{.forward_seconds = 0.6,
                         .recompute_seconds = 0.2,
                         .backward_seconds = 1.0,
                         .wait_seconds = 0.125,
                         .communication_seconds = 0.0625,
                         .optimizer_seconds = 0.2,
                         .checkpoint_seconds = 0.05,
                         .core_wait_seconds = 0.5};
  Summary summary = Of({.stages = {times, times}, .other_seconds = 0.1, .config = "model { d_ff: 96 }"});
  EXPECT_THAT(TextsOf(Table(summary, "runs")),
              ElementsAre(ElementsAre("one", "2 x 1", "6", "6.000", "6.200 (step 6)", "BLEU 12.5 (step 6)", "2337.5",
                                      "428", "10.0", "0 (+0.0%)", "all steps done")));
  EXPECT_THAT(TextsOf(Table(summary, "stages"))[1],
              ElementsAre("1", "450.0", "150.0", "750.0", "150.0", "500.0", "50.0", "125.0", "62.5", "100.0"));
  EXPECT_THAT(TextsOf(Table(summary, "memory"))[1][2], "320.0");
  EXPECT_THAT(TextsOf(Table(summary, "config")), ::testing::Contains(ElementsAre("model.d_ff", "96")));
  const SummaryTable parts = Table(summary, "parts");
  double sum = 0, share = 0;
  for (size_t i = 0; i + 1 < parts.rows.size(); ++i) {
    sum += *parts.rows[i][1].value;
    share += *parts.rows[i][2].value;
  }
  EXPECT_NEAR(sum, 2337.5, 1e-9);
  EXPECT_NEAR(*parts.rows.back()[1].value, 2337.5, 1e-9);
  EXPECT_NEAR(share, 100, 1e-9);
  summary.summaries[0].parts.reset();
  EXPECT_THAT(Table(summary, "stages").note, HasSubstr("one: no stage times recorded (logging.every_steps)"));
}

TEST_F(SummaryTest, PredictionsStandBesideMeasurements) {
  Summary summary = Of(TwoRanks());
  summary.predictions = {{.costs = "these costs",
                          .predicted_bytes = int64_t{300} << 20,
                          .measured_seconds = 3.25,
                          .model_tflops = 1.5,
                          .utilisation = 0.5,
                          .roofline_share = 0.25}};
  summary.predictions[0].layout.step_seconds = 2.6;
  const SummaryTable table = Table(summary, "predictions");
  EXPECT_THAT(TextsOf(table),
              ElementsAre(ElementsAre("one", "2600.0", "3250.0", "-20.0%", "300.0", "-", "1.5", "50.0%", "25.0%")));
  EXPECT_THAT(table.note, HasSubstr("Costs: these costs."));
  summary.no_predictions = "the costs are another model's";
  EXPECT_THAT(SummaryToText(summary), HasSubstr("\nNo prediction: the costs are another model's\n"));
}

// Diagnoses come before any number; of thousands of warnings the first and the last.
TEST_F(SummaryTest, DiagnosesComeFirst) {
  WriteRecordedRun(directory_ / "one", TwoRanks());
  std::string lines = Contents(directory_ / "one/metrics.jsonl");
  absl::StrAppend(&lines, R"({"event":"diagnosis","step":1500,"text":"gradients vanish"})", "\n");
  for (const char* nll : {"3.5", "3.25"}) {
    absl::StrAppend(&lines, R"({"event":"validation","step":4,"nll":)", nll, "}\n");
  }
  for (int step = 0; step < 1000; ++step) {
    absl::StrAppend(&lines, R"({"event":"warning","step":)", step, R"(,"text":"the update was skipped"})", "\n");
  }
  SetContents(directory_ / "one/metrics.jsonl", lines);
  const auto summary = MakeSummary({directory_ / "one"}).value();
  const std::string text = SummaryToText(summary);
  EXPECT_LT(text.find("  diagnosis, step 1,500: gradients vanish\n"), text.find("last nll"));
  EXPECT_THAT(text, AllOf(HasSubstr("step 4: the update"), HasSubstr("990 more warnings"), HasSubstr("step 995: the"),
                          Not(HasSubstr("step 5: the update")), Not(HasSubstr("step 994: the update"))));
  const auto json = nlohmann::json::parse(SummaryToJson(summary))["runs"][0];
  EXPECT_EQ(json["diagnoses"], nlohmann::json::parse(R"([{"step": 1500, "text": "gradients vanish"}])"));
  EXPECT_EQ(json["warnings"].size(), 1000u);
  EXPECT_EQ(json["validation_nll"], 3.25) << "the last one";
  EXPECT_THAT(TextsOf(Table(summary, "runs"))[0], ::testing::Contains("3.250 (step 4)")) << "the best one";
}

TEST_F(SummaryTest, AFailedRunSaysWhy) {
  WriteRecordedRun(directory_ / "one", TwoRanks());
  std::string lines = Contents(directory_ / "one/metrics.jsonl");
  SetContents(directory_ / "one/metrics.jsonl", lines.substr(0, lines.find(R"({"event":"finish")")));
  ASSERT_TRUE(MakeDirectories(directory_ / "one/logs").ok());
  const std::string log = directory_ / "one/logs/rank_00000.log";
  const std::string failed = "T start: hadal\nT end: exit code 4: not finite: step 7 failed\n";
  const auto ended = [&](const std::string& text) {
    SetContents(log, text);
    const auto summary = MakeSummary({directory_ / "one"}).value();
    return std::pair(summary.runs[0].failure, TextsOf(Table(summary, "runs"))[0].back());
  };
  EXPECT_EQ(ended(failed), std::pair(std::string("not finite: step 7 failed"), std::string("failed")));
  EXPECT_EQ(ended(failed + "T start: hadal\nT step 8\n"), std::pair(std::string(), std::string("not yet")));
  EXPECT_EQ(ended("T start: hadal\nT end: exit code 85\n"), std::pair(std::string(), std::string("not yet")));
  SetContents(log, failed);
  EXPECT_THAT(SummaryToText(*MakeSummary({directory_ / "one"})), HasSubstr("\n  failed: not finite: step 7 failed\n"));
}

TEST_F(SummaryTest, ScalingIsTheSameInEveryForm) {
  WriteRecordedRun(directory_ / "one", {.stages = {{.forward_seconds = 1.2, .backward_seconds = 2.0}}});
  WriteRecordedRun(directory_ / "two", TwoRanks());
  const auto summary = MakeSummary({directory_ / "one", directory_ / "two"}).value();
  ASSERT_TRUE(summary.scaling.has_value());
  const auto json = nlohmann::json::parse(SummaryToJson(summary));
  const auto& row = json["scaling"]["rows"][1];
  double causes = 0;
  for (const auto& [name, share] : row["causes"].items()) causes += share.get<double>();
  EXPECT_NEAR(causes, row["lost_share"].get<double>(), 1e-9);
  EXPECT_EQ(json["scaling"]["kind"], "strong");
  EXPECT_THAT(TextsOf(Table(summary, "scaling"))[1],
              ElementsAre("two", "2", "1,000", "1850.0", "541", "1.73x", "86.5%", "13.5%"));
  const SummaryTable table = Table(summary, "causes");
  EXPECT_EQ(table.columns.back(), "two");
  double sum = 0;
  for (const std::vector<SummaryCell>& cause : table.rows) sum += *cause[2].value;
  EXPECT_NEAR(sum, 100 * row["lost_share"].get<double>(), 1e-9);
  EXPECT_THAT(SummaryToText(summary),
              HasSubstr("  two      2            1,000     1850.0              541     1.73x       86.5%  13.5%\n"));
  EXPECT_THAT(SummaryToCsv(summary),
              AllOf(HasSubstr(absl::StrCat("Scaling efficiency (strong),two,efficiency,",
                                           nlohmann::json(100 * row["efficiency"].get<double>()).dump(), "\n")),
                    HasSubstr("Runs,two,ranks x threads,2 x 1\n")));
}

// A run's directory can have any name.
TEST_F(SummaryTest, NamesAreTextInEveryForm) {
  const std::string run = directory_ / "a,\"b\x1b[31m\xff";
  WriteRecordedRun(run, TwoRanks());
  const auto summary = MakeSummary({run}).value();
  EXPECT_THAT(SummaryToText(summary), AllOf(HasSubstr("a,\"b\\x1b[31m\\xff: a model, 12,345 parameters\n"),
                                            Not(HasSubstr("\x1b")), Not(HasSubstr("\xff"))));
  EXPECT_THAT(SummaryToCsv(summary), HasSubstr("Runs,\"a,\"\"b"));
  EXPECT_TRUE(nlohmann::json::accept(SummaryToJson(summary)));
}

TEST_F(SummaryTest, ManyStagesAreChosenInTextAndAllInJson) {
  WriteRecordedRun(directory_ / "one",
                   {.micro_batches = 64, .stages = std::vector<StageTimes>(60, {.forward_seconds = 1})});
  const auto summary = MakeSummary({directory_ / "one"}).value();
  EXPECT_THAT(SummaryToText(summary), HasSubstr("(24 of 60 rows; --format json has all)"));
  EXPECT_EQ(nlohmann::json::parse(SummaryToJson(summary))["runs"][0]["stages"].size(), 60u);
}

TEST_F(SummaryTest, TheTraceOfARunIsNamedInTheJson) {
  WriteRecordedRun(directory_ / "one", TwoRanks());
  const std::string trace = directory_ / "one/trace/steps_3-3.json";
  ASSERT_TRUE(MakeDirectories(directory_ / "one/trace").ok());
  SetContents(trace, "");
  const auto summary = MakeSummary({directory_ / "one"}).value();
  EXPECT_EQ(nlohmann::json::parse(SummaryToJson(summary))["runs"][0]["trace"], trace);
}

TEST_F(SummaryTest, IsWrittenIntoTheRunDirectory) {
  WriteRecordedRun(directory_ / "one", TwoRanks());
  ASSERT_TRUE(WriteRunReport(directory_ / "one").ok());
  EXPECT_EQ(Contents(directory_ / "one/report.txt"), SummaryToText(*MakeSummary({directory_ / "one"})));
  EXPECT_TRUE(absl::IsNotFound(WriteRunReport(directory_ / "none")));
}

TEST_F(SummaryTest, RunsOfOneNameAreNamedByTheirDirectories) {
  const std::vector<std::string> runs = {directory_ / "a/run", directory_ / "b/run", directory_ / "other"};
  for (const std::string& run : runs) WriteRecordedRun(run, TwoRanks());
  const auto summary = MakeSummary(runs).value();
  EXPECT_EQ(summary.runs[0].name, runs[0]);
  EXPECT_EQ(summary.runs[1].name, runs[1]);
  EXPECT_EQ(summary.runs[2].name, "other");
}

// Programs of other people read these names. The values are distinct, so that a mix-up shows.
TEST_F(SummaryTest, EveryNumberOfTheJsonHasItsName) {
  Summary summary = Of({.stages = {{.forward_seconds = 1.25, .backward_seconds = 2.0}}});
  RunSummary& times = summary.summaries[0];
  times.stages = NumberedStep().stages;
  times.beyond_costs = {9};
  times.memory = NumberedStep().memory;
  summary.predictions = {{.costs = "costs",
                          .predicted_bytes = 13,
                          .measured_bytes = 14,
                          .measured_seconds = 4,
                          .model_tflops = 15,
                          .utilisation = 0.25,
                          .roofline_share = 0.125}};
  summary.predictions[0].layout.step_seconds = 6;
  auto json = nlohmann::json::parse(SummaryToJson(summary))["runs"][0];
  EXPECT_EQ(json["nll"], 6.0);
  EXPECT_NEAR(json["target_tokens"].get<double>(), 1000, 1e-9);
  EXPECT_NEAR(json["step_seconds"].get<double>(), 3.25, 1e-9);
  EXPECT_NEAR(json["outside_seconds"].get<double>(), 0.01, 1e-9);
  EXPECT_NEAR(json["target_tokens_per_second"].get<double>(), 1000 / 3.25, 1e-9);
  EXPECT_EQ(json["stages"][0]["predicted_bytes"], 22 + MemoryAllowance::Bytes(summary.runs[0].threads));
  json["stages"][0].erase("predicted_bytes");
  EXPECT_EQ(json["stages"], nlohmann::json::parse(R"([{"stage": 0, "forward_seconds": 14, "recompute_seconds": 15,
      "backward_seconds": 16, "wait_seconds": 17, "communication_seconds": 18, "optimizer_seconds": 19,
      "checkpoint_seconds": 20, "core_wait_seconds": 21, "compute_beyond_costs": 9, "arena_bytes": 22,
      "held_bytes": 23, "peak_resident_bytes": 24}])"));
  EXPECT_EQ(json["prediction"], nlohmann::json::parse(R"({"costs": "costs", "predicted_step_seconds": 6,
      "measured_step_seconds": 4, "step_error": 0.5, "predicted_bytes": 13, "measured_bytes": 14,
      "model_tflops_per_second": 15, "utilisation": 0.25, "roofline_share": 0.125})"));
}

TEST_F(SummaryTest, ScoresSpeechByItsWordErrorRate) {
  Summary summary = Of({.frame_width = 80, .stages = {{.forward_seconds = 1.25}}});
  EXPECT_EQ(TextsOf(Table(summary, "runs"))[0][5], "WER 10.7% (step 6)");
  EXPECT_EQ(nlohmann::json::parse(SummaryToJson(summary))["runs"][0]["wer"], 0.107);
}

TEST_F(SummaryTest, RunsOfDifferentModelsStandSideBySideWithoutScaling) {
  WriteRecordedRun(directory_ / "one", TwoRanks());
  WriteRecordedRun(directory_ / "two", TwoRanks());
  const std::string path = directory_ / "two/metrics.jsonl";
  std::string text = Contents(path);
  text.replace(text.find("a model"), 7, "<b>other");
  SetContents(path, text);
  const auto summary = MakeSummary({directory_ / "one", directory_ / "two"}).value();
  EXPECT_THAT(summary.no_scaling, HasSubstr("<b>other"));
  EXPECT_THAT(SummaryToText(summary), HasSubstr("\nNo scaling: scaling compares runs of one model"));
  EXPECT_EQ(nlohmann::json::parse(SummaryToJson(summary))["no_scaling"], summary.no_scaling);
}

}  // namespace
}  // namespace hadal
