#include "tools/run_record.h"

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

TEST(RunRecord, SaysWhatIsMissing) {
  const TemporaryDirectory directory;
  EXPECT_EQ(ReadRun(directory / "nowhere").status().code(), absl::StatusCode::kNotFound);
  SetContents(directory / "metrics.jsonl", "{\"event\":\"run\"}\n");
  EXPECT_THAT(std::string(ReadRun(directory.path()).status().message()), HasSubstr("holds no step"));
}

}  // namespace
}  // namespace hadal
