#include "tools/plan/schedule_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "runtime/files.h"
#include "tests/support/command_runner.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ScheduleCommand, DrawsOneRowARankWithTheBubbleOfTheFormula) {
  const auto text = PrintSchedule({.shape = {.stages = 2, .chunks = 1, .micro_batches = 4}}).value();
  EXPECT_THAT(text, AllOf(HasSubstr("rank 0  F0"), HasSubstr("rank 1"), HasSubstr("by rank: 2 1"),
                          HasSubstr("bubble by the formula: 20.0%")));
}

TEST(ScheduleCommand, ChecksEveryKindWithOneAndWithMoreOutstandingSends) {
  for (const ScheduleKind kind : AllScheduleKinds()) {
    const int chunks = RunsSeveralChunks(kind) ? 2 : 1;
    const auto text =
        CheckScheduleCommand(
            {.kind = kind, .shape = {.stages = 3, .chunks = chunks, .micro_batches = 5}, .outstanding_sends = 4})
            .value();
    EXPECT_THAT(text, AllOf(HasSubstr("with 1 outstanding send "), HasSubstr("with 4 outstanding sends ")));
  }
}

TEST(ScheduleCommand, BothSubcommandsTakeTheKind) {
  for (const char* subcommand : {"print", "check"}) {
    const CommandResult result = RunCommand(
        AddScheduleCommand, absl::StrCat("schedule ", subcommand, " --kind gpipe --stages 2 --micro-batches 4"));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("gpipe, 2 stage(s)")) << subcommand;
  }
}

TEST(ScheduleCommand, StatesWhichWeightHalvesWait) {
  const auto text =
      CheckScheduleCommand({.kind = ScheduleKind::kZbH1, .shape = {.stages = 3, .chunks = 1, .micro_batches = 5}})
          .value();
  EXPECT_THAT(text, HasSubstr("weight halves pending at once, by rank: 0 2 3\n"));
}

TEST(ScheduleCommand, RefusesMoreChunksThanTheScheduleTakes) {
  EXPECT_EQ(CheckScheduleCommand({.shape = {.stages = 2, .chunks = 2, .micro_batches = 2}}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ScheduleCommand, RefusesProgramsThatNoMemoryHolds) {
  const auto checked = CheckScheduleCommand({.shape = {.stages = 65536, .chunks = 1, .micro_batches = 65536}});
  EXPECT_THAT(std::string(checked.status().message()), HasSubstr("too large"));
}

TEST(ScheduleText, ComesBackAsItWent) {
  const auto programs =
      MakeSchedules(ScheduleKind::kInterleaved1F1B, {.stages = 3, .chunks = 2, .micro_batches = 4}).value();
  const auto again = ScheduleFromText("# a comment\n" + ScheduleToText(programs), "text", 3).value();
  EXPECT_EQ(again, programs);
}

TEST(ScheduleText, NamesTheLineThatItCannotRead) {
  const auto message = [](const std::string& text) {
    return std::string(ScheduleFromText(text, "file", 2).status().message());
  };
  EXPECT_THAT(message("0 forward 0 0\n2 forward 0 0\n"), HasSubstr("file:2: rank \"2\""));
  EXPECT_THAT(message("# one\n" + std::string(5000, '0')), HasSubstr("file:2: 5000 bytes"));
  EXPECT_THAT(message("0 fly 0 0\n"), HasSubstr("file:1: no operation \"fly\""));
  EXPECT_THAT(message("\n0 forward 0\n"), HasSubstr("file:2: forward needs"));
}

// Rank 0 waits for a gradient before it has sent what the gradient comes from.
TEST(ScheduleCommand, NamesTheCycleOfADeadlock) {
  const auto programs = MakeSchedules(ScheduleKind::k1F1B, {.stages = 2, .chunks = 1, .micro_batches = 1}).value();
  std::string text = ScheduleToText(programs);
  const std::string send = "0 send_forward 0 0\n", receive = "0 receive_backward 0 0\n";
  const size_t at = text.find(send + receive);
  ASSERT_NE(at, std::string::npos) << text;
  text.replace(at, send.size() + receive.size(), receive + send);
  const TemporaryDirectory directory;
  const std::string path = JoinPath(directory.path(), "deadlock.txt");
  ASSERT_TRUE(ReplaceFile(path, text, "test").ok());
  const auto checked = CheckScheduleCommand({.shape = {.stages = 2, .chunks = 1, .micro_batches = 1}, .program = path});
  EXPECT_EQ(checked.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(checked.status().message()), AllOf(HasSubstr("rank 0"), HasSubstr("rank 1")));
}

}  // namespace
}  // namespace hadal
