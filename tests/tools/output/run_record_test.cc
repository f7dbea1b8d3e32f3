#include "tools/output/run_record.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "tests/support/numbered_step.h"
#include "tests/support/recorded_run.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;

TEST(RunRecord, ComesBackAsTheSinkWroteIt) {
  const TemporaryDirectory directory;
  const RecordedRun written{.threads = 2, .stages = {{.forward_seconds = 0.1, .wait_seconds = 0.2}, {}}};
  WriteRecordedRun(directory / "a_run", written);
  const auto run = ReadRun(directory / "a_run/").value();
  EXPECT_EQ(run.name, "a_run");
  EXPECT_EQ(run.ranks, 2);
  EXPECT_EQ(run.cores(), 4);
  ASSERT_EQ(run.steps.size(), 6u);
  ASSERT_EQ(run.steps[2].stages.size(), 2u);
  EXPECT_EQ(run.validations.at(0).bleu, 12.5);
  EXPECT_EQ(run.finish, "all steps done");
  ASSERT_TRUE(run.layout.has_value());
  EXPECT_EQ(run.layout->shape.stages, 2);
  EXPECT_EQ(run.layout->shape.micro_batches, 8);
  EXPECT_FALSE(run.layout->shape.free_links) << "an older run's record does not have it";
}

// A run whose numbers are all different, so that none can come back in another's place.
class NumberedRunTest : public ::testing::Test {
 protected:
  NumberedRunTest() {
    SetContents(directory_ / "config.resolved.textproto",
                "pipeline { schedule: \"interleaved_zb\" stages: 3 chunks: 2 replicas: 5 outstanding_sends: 7 "
                "recompute_auto: true memory_limit_bytes: 1000 placement: \"stages_together\" } "
                "batch { micro_batches: 30 }");
    auto sink = *MetricsJsonl::Open({.path = directory_ / "metrics.jsonl"});
    sink->OnStart({.model = "a model",
                   .parameters = 31,
                   .source_vocabulary = 32,
                   .frame_width = 35,
                   .target_vocabulary = 33,
                   .encoder_sublayers = 2,
                   .ranks = 15,
                   .free_links = true,
                   .threads = 34,
                   .recompute_every = 4});
    sink->OnStep(NumberedStep());
    sink->OnDepth(RecordedDepth(3));
    sink->OnValidation({.step = 41, .nll = 42});
    sink->OnText(43, TextKind::kNotice, "not kept");
    sink->OnText(44, TextKind::kWarning, "careful");
  }

  void SetUp() override {
    absl::StatusOr<RunRecord> run = ReadRun(directory_.path());
    ASSERT_TRUE(run.ok()) << run.status();
    run_ = *std::move(run);
  }

  const TemporaryDirectory directory_;
  RunRecord run_;
};

template <typename... Number>
std::vector<double> Doubles(Number... numbers) {
  return {static_cast<double>(numbers)...};
}

TEST_F(NumberedRunTest, WhatIsKnownBeforeTheFirstStep) {
  EXPECT_EQ(run_.model, "a model");
  EXPECT_THAT(Doubles(run_.parameters, run_.source_vocabulary, run_.frame_width, run_.target_vocabulary,
                      run_.encoder_sublayers, run_.ranks, run_.threads),
              testing::ElementsAre(31, 32, 35, 33, 2, 15, 34));
}

std::vector<double> NumbersOf(const StageTimes& t) {
  return Doubles(t.forward_seconds, t.recompute_seconds, t.backward_seconds, t.wait_seconds, t.communication_seconds,
                 t.optimizer_seconds, t.checkpoint_seconds, t.core_wait_seconds);
}

std::vector<double> NumbersOf(const StageMemory& m) {
  return Doubles(m.arena_bytes, m.held_bytes, m.peak_resident_bytes);
}

std::vector<double> NumbersOf(const StepMetrics& s) {
  return Doubles(s.step, s.loss, s.nll, s.target_tokens, s.step_seconds, s.elapsed_seconds);
}

TEST_F(NumberedRunTest, AStepsNumbers) {
  const StepMetrics written = NumberedStep();
  ASSERT_EQ(run_.steps.size(), 1u);
  const StepMetrics& read = run_.steps[0];
  EXPECT_EQ(NumbersOf(read), NumbersOf(written));
  ASSERT_EQ(read.stages.size(), 1u);
  EXPECT_EQ(NumbersOf(read.stages[0]), NumbersOf(written.stages[0]));
  ASSERT_EQ(read.memory.size(), 1u);
  EXPECT_EQ(NumbersOf(read.memory[0]), NumbersOf(written.memory[0]));
}

TEST_F(NumberedRunTest, ValidationsAndWarnings) {
  ASSERT_EQ(run_.validations.size(), 1u);
  EXPECT_EQ(run_.validations[0].step, 41);
  EXPECT_EQ(run_.validations[0].nll, 42);
  EXPECT_FALSE(run_.validations[0].bleu.has_value());
  ASSERT_EQ(run_.warnings.size(), 1u);
  EXPECT_EQ(run_.warnings[0].step, 44);
  EXPECT_EQ(run_.warnings[0].text, "careful");
  EXPECT_EQ(run_.finish, "") << "it goes on";
  auto sink = *MetricsJsonl::Open({.path = directory_ / "metrics.jsonl", .first_step = 46});
  sink->OnText(45, TextKind::kNotice, "the validation set is another one (2 samples, checksum 01, before 1 samples)");
  sink->OnValidation({.step = 45, .nll = 50});
  EXPECT_EQ(ReadRun(directory_.path())->validations.at(0).nll, 50) << "the one before compares with none of these";
}

TEST_F(NumberedRunTest, TheConfigWithItsDefaults) {
  const auto value = [&](const std::string& path) {
    const auto found = std::ranges::find(run_.config, path, &EffectiveValue::path);
    return found == run_.config.end() ? "" : found->value;
  };
  EXPECT_EQ(value("pipeline.outstanding_sends"), "7");
  EXPECT_EQ(value("model.d_model"), "512");
}

TEST_F(NumberedRunTest, HowItLayOnItsRanks) {
  ASSERT_TRUE(run_.layout.has_value());
  EXPECT_EQ(run_.layout->schedule, ScheduleKind::kInterleavedSplit) << "with recomputation one half waits";
  EXPECT_EQ(run_.layout->shape.stages, 3);
  EXPECT_EQ(run_.layout->shape.chunks, 2);
  EXPECT_EQ(run_.layout->shape.micro_batches, 30);
  EXPECT_TRUE(run_.layout->shape.free_links);
  EXPECT_EQ(run_.layout->replicas, 5);
  EXPECT_EQ(run_.layout->outstanding_sends, 7);
  EXPECT_EQ(run_.layout->recompute_every, 4) << "what the run chose";
  EXPECT_EQ(run_.layout->placement, Placement::kStagesTogether);
}

TEST(RunRecord, AStartOnOtherRanksBeginsALayoutAndEndsTheEnd) {
  const TemporaryDirectory directory;
  const std::string step = "{\"event\":\"step\",\"step\":1}\n";
  const auto start = [](int ranks, const char* layout = "1f1b") {
    return absl::StrCat("{\"event\":\"run\",\"ranks\":", ranks, ",\"layout\":\"", layout, "\"}\n");
  };
  const auto read = [&](const std::string& lines) {
    SetContents(directory / "metrics.jsonl", lines);
    return ReadRun(directory.path()).value();
  };
  const std::string ended = absl::StrCat(start(4), step, step, "{\"event\":\"finish\",\"reason\":\"a signal\"}\n");
  EXPECT_EQ(read(ended).finish, "a signal");
  EXPECT_EQ(read(ended).layout_begins, 0u);
  EXPECT_EQ(read(ended + start(4)).finish, "") << "it goes on";
  EXPECT_EQ(read(ended + start(4) + step).layout_begins, 0u);
  EXPECT_EQ(read(ended + start(2)).layout_begins, 2u);
  EXPECT_EQ(read(ended + start(2) + step).layout_begins, 2u);
  EXPECT_EQ(read(ended + start(4, "gpipe")).layout_begins, 2u);
  std::filesystem::create_directory(directory / "trace");
  SetContents(directory / "trace/steps_1-1.json", "{}");
  const std::string trace = directory / "trace/steps_1-1.json";
  EXPECT_EQ(read(ended + start(4) + step).trace_path, trace);
  EXPECT_EQ(read(ended + start(4, "gpipe") + step).trace_path, trace) << "its first step is the trace's";
  EXPECT_EQ(read(ended + start(4, "gpipe")).trace_path, "") << "of another layout";
  EXPECT_EQ(ReadRun(directory.path() + "/").value().name, ReadRun(directory.path()).value().name);
}

TEST(RunRecord, TakesALineCutShortAndNumbersThatAreNotFinite) {
  const TemporaryDirectory directory;
  SetContents(directory / "metrics.jsonl",
              "{\"event\":\"step\",\"step\":0,\"loss\":null}\n{\"event\":\"new kind\"}\n{\"event\":\"st");
  const auto run = ReadRun(directory.path()).value();
  ASSERT_EQ(run.steps.size(), 1u);
  EXPECT_TRUE(std::isnan(run.steps[0].loss));
  EXPECT_FALSE(run.layout.has_value());
  EXPECT_EQ(run.trace_path, "");
}

TEST(RunRecord, WhatIsOfAnotherTypeIsAsIfItWereNotThere) {
  const TemporaryDirectory directory;
  SetContents(directory / "metrics.jsonl",
              "{\"event\":\"run\",\"model\":7,\"ranks\":\"many\"}\n5\n[1]\n{\"event\":7}\n"
              "{\"event\":\"step\",\"step\":\"x\",\"skipped\":1,\"stages\":[{\"forward\":\"fast\"}]}\n");
  const auto run = ReadRun(directory.path()).value();
  EXPECT_EQ(run.model, "");
  EXPECT_EQ(run.ranks, 1);
  ASSERT_EQ(run.steps.size(), 1u);
  EXPECT_EQ(run.steps[0].step, 0);
  EXPECT_FALSE(run.steps[0].skipped);
  ASSERT_EQ(run.steps[0].stages.size(), 1u);
  EXPECT_TRUE(std::isnan(run.steps[0].stages[0].forward_seconds));
  EXPECT_TRUE(run.steps[0].memory.empty());
}

TEST(RunRecord, StagesThatTheConfigDoesNotSayAreTheRanksOfAReplica) {
  const TemporaryDirectory directory;
  WriteRecordedRun(directory / "run", {.replicas = 2, .stages = {{.forward_seconds = 0.1}, {}, {}}});
  const auto run = ReadRun(directory / "run").value();
  EXPECT_EQ(run.ranks, 6);
  ASSERT_TRUE(run.layout.has_value());
  EXPECT_EQ(run.layout->shape.stages, 3);
  EXPECT_EQ(run.layout->replicas, 2);
}

TEST(RunRecord, WhatStepsSayNowAndThenComesBack) {
  const TemporaryDirectory directory;
  SetContents(directory / "metrics.jsonl",
              "{\"event\":\"step\",\"step\":0,\"skipped\":true}\n"
              "{\"event\":\"step\",\"step\":1,\"skipped\":false}\n");
  const auto run = ReadRun(directory.path()).value();
  EXPECT_EQ(run.ranks, 1) << "not recorded";
  ASSERT_EQ(run.steps.size(), 2u);
  EXPECT_TRUE(run.steps[0].skipped);
  EXPECT_FALSE(run.steps[1].skipped);
}

TEST(RunRecord, TheLastTraceIsTheOneShown) {
  const TemporaryDirectory directory;
  SetContents(directory / "metrics.jsonl", "{\"event\":\"step\",\"step\":0}\n");
  ASSERT_TRUE(MakeDirectories(directory / "trace").ok());
  SetContents(directory / "trace/steps_90-92.json", "earliest");
  SetContents(directory / "trace/steps_100.json", "earlier");
  SetContents(directory / "trace/steps_200.json", "later");
  SetContents(directory / "trace/steps_300.json.partial", "half");
  EXPECT_EQ(ReadRun(directory.path())->trace_path, directory / "trace/steps_200.json");
  SetContents(directory / "trace/steps_1000-1001.json", "latest");
  EXPECT_EQ(ReadRun(directory.path())->trace_path, directory / "trace/steps_1000-1001.json");
}

TEST(RunRecord, SaysWhatIsMissing) {
  const TemporaryDirectory directory;
  EXPECT_EQ(ReadRun(directory / "nowhere").status().code(), absl::StatusCode::kNotFound);
  SetContents(directory / "metrics.jsonl", "{\"event\":\"run\"}\n");
  EXPECT_THAT(std::string(ReadRun(directory.path()).status().message()), HasSubstr("has no step"));
}

}  // namespace
}  // namespace hadal
