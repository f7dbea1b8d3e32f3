#include "tools/report/run_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/recorded_run.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;

TEST(RunRecord, ComesBackAsTheSinkWroteIt) {
  const TemporaryDirectory directory;
  const RecordedRun written{.threads = 2, .stages = {{.forward_seconds = 0.1, .wait_seconds = 0.2}, {}}};
  WriteRecordedRun(directory / "a_run", written);
  const auto run = ReadRun(directory / "a_run/");
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->name, "a_run");
  EXPECT_EQ(run->ranks, 2);
  EXPECT_EQ(run->cores(), 4);
  ASSERT_EQ(run->steps.size(), 6u);
  EXPECT_EQ(run->steps[2].loss, 7.0 - 0.1 * 2);
  ASSERT_EQ(run->steps[2].stages.size(), 2u);
  EXPECT_EQ(run->steps[2].stages[0].wait_seconds, 0.2);
  EXPECT_EQ(run->steps[2].memory[1].held_bytes, int64_t{320} << 20);
  EXPECT_EQ(run->steps[2].memory[1].peak_resident_bytes, int64_t{350} << 20);
  EXPECT_EQ(run->validations.at(0).bleu, 12.5);
  EXPECT_EQ(run->finish, "all steps done");
  ASSERT_TRUE(run->layout.has_value());
  EXPECT_EQ(run->layout->shape.stages, 2);
  EXPECT_EQ(run->layout->shape.micro_batches, 8);
}

TEST(RunRecord, TakesALineCutShortAndNumbersThatAreNotFinite) {
  const TemporaryDirectory directory;
  SetContents(directory / "metrics.jsonl",
              "{\"event\":\"step\",\"step\":0,\"loss\":null}\n{\"event\":\"new kind\"}\n{\"event\":\"st");
  const auto run = ReadRun(directory.path());
  ASSERT_TRUE(run.ok()) << run.status();
  ASSERT_EQ(run->steps.size(), 1u);
  EXPECT_TRUE(std::isnan(run->steps[0].loss));
  EXPECT_FALSE(run->layout.has_value());
  EXPECT_EQ(run->trace_json, "");
}

TEST(RunRecord, WhatStepsSayNowAndThenComesBack) {
  const TemporaryDirectory directory;
  SetContents(directory / "metrics.jsonl",
              "{\"event\":\"step\",\"step\":0,\"skipped\":true,\"depth_gradient_norms\":[1.5,null]}\n"
              "{\"event\":\"step\",\"step\":1,\"skipped\":false,\"stages\":[{\"forward\":1,\"core_wait\":0.25}]}\n"
              "{\"event\":\"warning\",\"step\":1,\"text\":\"careful\"}\n");
  const auto run = ReadRun(directory.path());
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->ranks, 1) << "not recorded";
  ASSERT_EQ(run->steps.size(), 2u);
  EXPECT_TRUE(run->steps[0].skipped);
  EXPECT_FALSE(run->steps[1].skipped);
  ASSERT_EQ(run->steps[0].depth_gradient_norms.size(), 2u);
  EXPECT_EQ(run->steps[0].depth_gradient_norms[0], 1.5f);
  EXPECT_TRUE(std::isnan(run->steps[0].depth_gradient_norms[1]));
  EXPECT_EQ(run->steps[1].stages.at(0).core_wait_seconds, 0.25);
  ASSERT_EQ(run->warnings.size(), 1u);
}

TEST(RunRecord, TheLastTraceIsTheOneShown) {
  const TemporaryDirectory directory;
  SetContents(directory / "metrics.jsonl", "{\"event\":\"step\",\"step\":0}\n");
  ASSERT_TRUE(MakeDirectories(directory / "trace").ok());
  SetContents(directory / "trace/steps_90-92.json", "earliest");
  SetContents(directory / "trace/steps_100.json", "earlier");
  SetContents(directory / "trace/steps_200.json", "later");
  SetContents(directory / "trace/steps_300.json.partial", "half");
  EXPECT_EQ(ReadRun(directory.path())->trace_json, "later");
  SetContents(directory / "trace/steps_1000-1001.json", "latest");
  EXPECT_EQ(ReadRun(directory.path())->trace_json, "latest");
}

TEST(RunRecord, SaysWhatIsMissing) {
  const TemporaryDirectory directory;
  EXPECT_EQ(ReadRun(directory / "nowhere").status().code(), absl::StatusCode::kNotFound);
  SetContents(directory / "metrics.jsonl", "{\"event\":\"run\"}\n");
  EXPECT_THAT(std::string(ReadRun(directory.path()).status().message()), HasSubstr("holds no step"));
}

}  // namespace
}  // namespace hadal
