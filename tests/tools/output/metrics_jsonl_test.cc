#include "tools/output/metrics_jsonl.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "nlohmann/json.hpp"
#include "runtime/files.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/numbered_step.h"
#include "tests/support/recorded_syncs.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class MetricsJsonlTest : public ::testing::Test {
 protected:
  MetricsJsonlTest() : path_(directory_ / "metrics.jsonl") {}

  std::unique_ptr<MetricsJsonl> Open(int64_t first_step) {
    return MetricsJsonl::Open({.path = path_, .first_step = first_step, .depth_every_steps = 2}).value();
  }
  // Runs steps [begin, end), a validation after every second.
  void Run(int64_t begin, int64_t end) {
    const auto sink = Open(begin);
    for (int64_t step = begin; step < end; ++step) {
      sink->OnStep({.step = step, .update = step, .loss = 1.0 / 3 + step});
      if (step % 2 == 0) sink->OnValidation({.step = step, .nll = 2});
    }
    EXPECT_TRUE(sink->Flush().ok());
  }
  std::vector<std::string> Lines() const {
    std::ifstream in(path_);
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }
  std::vector<int64_t> Steps(const std::string& event) const {
    std::vector<int64_t> steps;
    for (const std::string& line : Lines()) {
      const json parsed = json::parse(line);
      if (parsed["event"] == event) steps.push_back(parsed["step"]);
    }
    return steps;
  }
  TemporaryDirectory directory_;
  std::string path_;
};

TEST_F(MetricsJsonlTest, WritesAStepThatReadsBackToTheSameBits) {
  const auto sink = Open(1);
  sink->OnStep({.step = 4, .loss = 0.1 + 0.2, .gradient_norm = 1e-30, .depth_gradient_norms = {1.23456e-5f, 2.0f}});
  const json line = json::parse(Lines().at(0));  // already on disk
  EXPECT_EQ(line["loss"].get<double>(), 0.1 + 0.2);
  EXPECT_EQ(line["gradient_norm"].get<double>(), 1e-30);
  EXPECT_FALSE(line.contains("analytic_bubble"));
  EXPECT_EQ(line["depth_gradient_norms"], json::parse("[1.235e-05, 2.0]"));
}

// Programs of other people read these names.
TEST_F(MetricsJsonlTest, EveryFieldHasItsName) {
  const auto sink = Open(1);
  sink->OnStart({.run_directory = "nowhere",
                 .attempt = "a",
                 .model = "DeepNorm",
                 .parameters = 1,
                 .source_vocabulary = 2,
                 .frame_width = 12,
                 .target_vocabulary = 3,
                 .encoder_sublayers = 4,
                 .decoder_sublayers = 5,
                 .ranks = 6,
                 .stages = 7,
                 .replicas = 8,
                 .free_links = true,
                 .threads = 9,
                 .recompute_every = 13,
                 .layout = "gpipe",
                 .first_step = 10,
                 .total_steps = 11});
  EXPECT_EQ(json::parse(Lines().at(0)), json::parse(R"({"event": "run", "attempt": "a", "model": "DeepNorm",
      "parameters": 1, "source_vocabulary": 2, "frame_width": 12, "target_vocabulary": 3, "encoder_sublayers": 4,
      "decoder_sublayers": 5, "ranks": 6, "stages": 7, "replicas": 8, "free_links": true, "threads": 9,
      "recompute_every": 13, "layout": "gpipe", "first_step": 10, "total_steps": 11})"));
  StepMetrics step = NumberedStep();
  step.corpus_tokens = {{"en-de", 27}, {"de-en", 28}};
  sink->OnStep(step);
  EXPECT_EQ(json::parse(Lines().at(1)), json::parse(R"({"event": "step", "step": 1, "update": 2, "loss": 4.0,
      "nll": 5.0, "perplexity": 6.0, "learning_rate": 7.0, "gradient_norm": 8.0, "target_tokens": 9,
      "tokens_per_second": 10.0, "step_seconds": 11.0, "elapsed_seconds": 12.0, "epoch": 13.0, "skipped": false,
      "measured_bubble": 25.0, "analytic_bubble": 26.0, "stages": [{"forward": 14.0, "recompute": 15.0,
      "backward": 16.0, "wait": 17.0, "communication": 18.0, "optimizer": 19.0, "checkpoint": 20.0,
      "core_wait": 21.0, "arena_bytes": 22, "held_bytes": 23, "peak_resident_bytes": 24}],
      "corpus_tokens": {"en-de": 27, "de-en": 28}})"));
  sink->OnValidation(
      {.step = 1,
       .nll = 2,
       .perplexity = 3,
       .scores = TranslationScores{.bleu = 4, .chrf = 7, .word_error_rate = 8, .character_error_rate = 9},
       .best = true,
       .sentences = 5,
       .seconds = 6,
       .corpora = {{.corpus = "en-de", .nll = 10, .target_tokens = 11},
                   {.corpus = "de-en", .nll = 12, .target_tokens = 13, .scores = TranslationScores()}}});
  EXPECT_EQ(json::parse(Lines().at(2)), json::parse(R"({"event": "validation", "step": 1, "nll": 2.0,
      "perplexity": 3.0, "bleu": 4.0, "chrf": 7.0, "wer": 8.0, "cer": 9.0, "best": true, "sentences": 5, "seconds": 6.0,
      "corpora": {"en-de": {"nll": 10.0, "target_tokens": 11}, "de-en": {"nll": 12.0, "target_tokens": 13, "bleu": 0.0,
      "chrf": 0.0, "wer": 0.0, "cer": 0.0}}})"));
  for (const TextKind kind : {TextKind::kNotice, TextKind::kWarning, TextKind::kDiagnosis, TextKind::kSample})
    sink->OnText(7, kind, "x");
  for (const auto& [line, event] : {std::pair(3, "notice"), {4, "warning"}, {5, "diagnosis"}, {6, "sample"}}) {
    EXPECT_EQ(json::parse(Lines().at(line)), json({{"event", event}, {"step", 7}, {"text", "x"}}));
  }
}

TEST_F(MetricsJsonlTest, ADevicesLaunchesAndGraphsStandWithTheStage) {
  const auto sink = Open(1);
  sink->OnStep(
      {.stages = {{.launches = 12}, {}}, .memory = {{.arena_bytes = 3, .graph_bytes = 4}, {.arena_bytes = 3}}});
  const json stages = json::parse(Lines().at(0))["stages"];
  EXPECT_EQ(stages[0]["launches"], 12);
  EXPECT_EQ(stages[0]["graph_bytes"], 4);
  EXPECT_FALSE(stages[1].contains("launches")) << "the CPU has none";
  EXPECT_FALSE(stages[1].contains("graph_bytes"));
}

TEST_F(MetricsJsonlTest, DepthNormsAppearAtTheirInterval) {
  const auto sink = Open(1);
  for (int64_t step = 1; step <= 4; ++step) sink->OnStep({.step = step, .depth_gradient_norms = {1.0f}});
  std::vector<bool> written;
  for (const std::string& line : Lines()) written.push_back(json::parse(line).contains("depth_gradient_norms"));
  EXPECT_THAT(written, ElementsAre(true, true, false, true));
}

TEST_F(MetricsJsonlTest, DepthNormsOfALongRunStayFew) {
  int64_t norms = 0;
  for (int64_t step = 1; step <= 100'000; ++step) norms += IsDepthStep(step, 10) ? 1 : 0;
  EXPECT_EQ(norms, 1 + 99 + 90 + 91);
  for (const int64_t step : {1, 10, 990, 1000, 9900, 10000, 99000}) EXPECT_TRUE(IsDepthStep(step, 10)) << step;
  for (const int64_t step : {5, 1010, 9990, 10100}) EXPECT_FALSE(IsDepthStep(step, 10)) << step;
}

TEST_F(MetricsJsonlTest, AFileOfAnotherProgramIsKeptAside) {
  for (const int64_t first_step : {1, 5}) {
    for (const char* const text : {"dear all,\nthis is no JSON\n", R"({"step": 4})", "\n", "{\"loss\": 1}\n",
                                   "{\"step\": \"12\"}\n{\"step\": null}\n", "{\"step\": 4, \"event\": 5}\n"}) {
      const TemporaryDirectory run;
      const std::string path = run / "metrics.jsonl";
      SetContents(path, text);
      std::vector<std::string> warnings;
      ASSERT_TRUE(MetricsJsonl::Open({.path = path,
                                      .first_step = first_step,
                                      .attempt = "a",
                                      .warn = [&](auto& warning) { warnings.push_back(warning); }})
                      .ok());
      EXPECT_EQ(Contents(path), "");
      EXPECT_EQ(Contents(path + ".replaced.a"), text);
      EXPECT_THAT(warnings, ElementsAre(HasSubstr("it is now " + path + ".replaced.a")));
    }
  }
}

TEST_F(MetricsJsonlTest, AnEmptyFileOrACutLineIsNoOtherProgramsFile) {
  for (const char* const text : {"", R"({"event":"run","att)"}) {
    SetContents(path_, text);
    Run(1, 2);
    EXPECT_THAT(Steps("step"), ElementsAre(1));
    EXPECT_THAT(*ListDirectory(directory_.path()), ElementsAre("metrics.jsonl"));
  }
}

// A line that is no JSON, far in front, would be found by whoever reads the whole file.
TEST_F(MetricsJsonlTest, ResumingDoesNotReadWhatCameLongBefore) {
  std::ofstream(path_) << R"({"event":"run"})"
                       << "\nof another program\n";
  {
    auto sink = *MetricsJsonl::Open({.path = path_, .first_step = 1});
    EXPECT_THAT(Lines(), ::testing::SizeIs(1)) << "a new run reads all";
    sink->OnText(0, TextKind::kNotice, "here");
  }
  std::ofstream(path_) << "of another program\n";
  for (int64_t step = 1; step <= 6; ++step) {
    std::ofstream(path_, std::ios::app) << R"({"event":"step","step":)" << step << "}\n";
  }
  Open(5);
  EXPECT_THAT(Lines(), ::testing::SizeIs(5));
}

TEST_F(MetricsJsonlTest, DepthIsAListASeries) {
  const auto sink = Open(1);
  DepthMetrics depth{.step = 4, .update = 5, .model_update = 0.25, .seconds = 0.5};
  depth[DepthSeries::kUpdateRatio] = {1.23456e-5f, 2.0f};
  depth[DepthSeries::kNormInput] = {NAN, INFINITY};
  sink->OnDepth(depth);
  EXPECT_EQ(json::parse(Lines().at(0)),
            json::parse(R"({"event":"depth","step":4,"update":5,"model_update":0.25,"seconds":0.5,
                            "update_ratio":[1.235e-05,2.0],"norm_input":[null,"not finite"]})"));
}

TEST_F(MetricsJsonlTest, AResumedRunLosesTheDepthOfTheStepsThatComeAgain) {
  for (const int64_t begin : {1, 3}) {
    const auto sink = Open(begin);
    for (int64_t step = begin; step <= 4; ++step) {
      sink->OnStep({.step = step});
      sink->OnDepth({.step = step});
    }
  }
  EXPECT_THAT(Steps("depth"), ElementsAre(1, 2, 3, 4));
}

TEST_F(MetricsJsonlTest, ValuesThatAreNotFiniteAreNull) {
  const auto sink = Open(1);
  sink->OnStep({.step = 0, .loss = NAN, .perplexity = INFINITY, .skipped = true, .depth_gradient_norms = {NAN}});
  const json line = json::parse(Lines().at(0));
  EXPECT_TRUE(line["loss"].is_null());
  EXPECT_TRUE(line["perplexity"].is_null());
  EXPECT_TRUE(line["depth_gradient_norms"][0].is_null());
  EXPECT_EQ(line["skipped"], true);
}

TEST_F(MetricsJsonlTest, WritesTheOtherEvents) {
  const auto sink = Open(1);
  sink->OnText(8, TextKind::kSample, "two\nlines, \xFF");
  sink->OnCheckpoint({.step = 8, .directory = "d", .seconds = 2, .stall_seconds = 0.25, .interval_seconds = 10});
  sink->OnCheckpoint({.step = 9, .in_memory = true});
  sink->OnFinish("step limit reached");
  const auto lines = Lines();
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(json::parse(lines[0])["text"], "two\nlines, \uFFFD");
  EXPECT_EQ(json::parse(lines[1]), json::parse(R"({"event": "checkpoint", "step": 8, "directory": "d", "seconds": 2.0,
                                                   "stall_seconds": 0.25, "interval_seconds": 10.0})"));
  EXPECT_EQ(json::parse(lines[2])["event"], "copy");
  EXPECT_EQ(json::parse(lines[3])["reason"], "step limit reached");
}

TEST_F(MetricsJsonlTest, ResumingLeavesNoGapAndDoublesNoStep) {
  Run(1, 9);
  {
    const RecordedSyncs syncs;
    Open(6);
    EXPECT_THAT(syncs.paths(), Contains(StartsWith(path_))) << "before it takes the earlier file's place";
  }
  Run(6, 11);
  EXPECT_THAT(Steps("step"), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
  EXPECT_THAT(Steps("validation"), ElementsAre(2, 4, 6, 8, 10));
}

TEST_F(MetricsJsonlTest, ResumingKeepsTheValidationOfItsOwnStepAndNoLineCutShort) {
  Run(1, 5);  // with the validation after step 4
  std::ofstream(path_, std::ios::app) << R"({"event":"step","step":5,"lo)";
  Run(5, 7);
  EXPECT_THAT(Steps("validation"), ElementsAre(2, 4, 6));
  EXPECT_THAT(Steps("step"), ElementsAre(1, 2, 3, 4, 5, 6));
  Run(1, 3);
  EXPECT_THAT(Steps("step"), ElementsAre(1, 2)) << "a new run";
}

// The earlier attempt ended while its disk was full, and this one resumes from a copy in memory.
TEST_F(MetricsJsonlTest, AGapIsNamedUntilItsStepsComeAgain) {
  Run(1, 3);
  Run(6, 8);
  EXPECT_THAT(Steps("step"), ElementsAre(1, 2, 6, 7));
  EXPECT_THAT(Steps("warning"), ElementsAre(6));
  EXPECT_THAT(Lines().at(3), HasSubstr(path_ + " has no lines of the steps 3 to 5: "));
  Run(5, 6);
  EXPECT_THAT(Lines().back(), HasSubstr(R"("step":5,)"));
  EXPECT_THAT(Lines().at(3), HasSubstr(" has no lines of the steps 3 to 4: "));
  Run(3, 4);
  EXPECT_THAT(Steps("step"), ElementsAre(1, 2, 3));
  EXPECT_THAT(Steps("warning"), ElementsAre());
}

// A stopped job that wakes up after another has resumed its run.
TEST_F(MetricsJsonlTest, WhatAnEarlierAttemptStillWritesGoesNowhere) {
  Run(1, 4);
  const auto earlier = Open(4);
  earlier->OnStep({.step = 4});
  const auto later = Open(3);
  earlier->OnStep({.step = 5});
  later->OnStep({.step = 3});
  EXPECT_THAT(Steps("step"), ElementsAre(1, 2, 3));
  EXPECT_THAT(*ListDirectory(directory_.path()), ElementsAre("metrics.jsonl")) << "nothing is left beside it";
}

TEST_F(MetricsJsonlTest, AnAttemptThatMayNotWriteLeavesTheFileAlone) {
  Run(1, 4);
  const std::vector<std::string> lines = Lines();
  const absl::Status refused =
      MetricsJsonl::Open({.path = path_, .may_write = [] { return absl::AbortedError("taken over"); }}).status();
  EXPECT_TRUE(absl::IsAborted(refused)) << refused;
  EXPECT_EQ(Lines(), lines);
  EXPECT_THAT(*ListDirectory(directory_.path()), ElementsAre("metrics.jsonl"));
}

TEST_F(MetricsJsonlTest, RefusesAPathItCannotAppendTo) {
  EXPECT_TRUE(absl::IsNotFound(MetricsJsonl::Open({.path = directory_ / "no_such_folder/metrics.jsonl"}).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(MetricsJsonl::Open({.path = directory_.path()}).status()));
}

TEST_F(MetricsJsonlTest, DoesNotEmptyWhatALinkLeadsTo) {
  SetContents(directory_ / "letter", "dear all,\nthis is no JSON\n");
  ASSERT_EQ(symlink("letter", path_.c_str()), 0);
  const absl::Status link = MetricsJsonl::Open({.path = path_}).status();
  EXPECT_THAT(std::string(link.message()), HasSubstr(path_ + ": is not a regular file; move it away"));
  EXPECT_EQ(Contents(directory_ / "letter"), "dear all,\nthis is no JSON\n");
}

TEST_F(MetricsJsonlTest, LinesOfAFullDiskAreWrittenWhenThereIsSpace) {
  std::vector<std::string> warnings;
  const auto sink = *MetricsJsonl::Open({.path = path_, .warn = [&](auto& warning) { warnings.push_back(warning); }});
  sink->OnStep({.step = 1});
  {
    const FileSizeLimit full(std::filesystem::file_size(path_) + 8);
    for (const int64_t step : {2, 3}) sink->OnStep({.step = step});
    EXPECT_THAT(warnings, ElementsAre(HasSubstr("are held in memory until they can be written")));
    const absl::Status status = sink->Flush();
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("not in the file: 2 lines"));
    EXPECT_THAT(Steps("step"), ElementsAre(1));
  }
  sink->OnStep({.step = 4});
  EXPECT_THAT(Steps("step"), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Steps("notice"), ElementsAre(4));
  EXPECT_THAT(warnings.at(1), HasSubstr("can be written again; no line is lost"));
  EXPECT_TRUE(sink->Flush().ok());
}

TEST_F(MetricsJsonlTest, OfSeveralSinksTheFirstErrorStays) {
  class Failing : public MetricsSink {
    absl::Status Flush() override { return absl::DataLossError("first"); }
  };
  MetricsFanOut all;
  all.Add(std::make_unique<Failing>());
  all.Add(Open(1));
  all.OnFinish("done");
  EXPECT_EQ(all.Flush(), absl::DataLossError("first"));
  EXPECT_THAT(Lines(), Contains(HasSubstr("done"))) << "the others write all the same";
}

TEST_F(MetricsJsonlTest, LinesThatAreLostAreCountedInTheirPlace) {
  const auto sink = Open(1);
  {
    const FileSizeLimit full(0);
    sink->OnText(1, TextKind::kNotice, std::string(WholeAppender::kMostHeldBytes, 'x'));
    sink->OnText(2, TextKind::kNotice, "held");
  }
  sink->OnStep({.step = 3});
  EXPECT_THAT(Steps("notice"), ElementsAre(2));
  EXPECT_THAT(Lines().at(2), HasSubstr(R"("warning","step":3,"text":")" + path_ + ": can be written again; 1 line(s)"));
}

}  // namespace
}  // namespace hadal
