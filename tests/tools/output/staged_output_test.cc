// Outputs appear whole or not at all, and one process at a time writes them.
#include "tools/output/staged_output.h"

#include <unistd.h>

#include <csignal>
#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "runtime/files.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// First, by its name: the child of this process must begin the thread that waits for signals.
TEST(StagedOutputDeathTest, ASignalLeavesWhatWasThere) {
  const TemporaryDirectory directory;
  SetContents(directory / "before", "b");
  const auto is_killed = [&](int signal) {
    EXPECT_EXIT(
        {
          std::signal(signal, SIG_DFL);  // the tests themselves may run under nohup
          const OutputFolder folder = OutputFolder::Take(directory.path()).value();
          const StagedOutput staged = StagedOutput::Begin(directory / "new").value();
          SetContents(staged.Path("half"), "h");
          raise(signal);
          while (true) pause();
        },
        ::testing::KilledBySignal(signal), "");
  };
  is_killed(SIGTERM);
  is_killed(SIGINT);
  is_killed(SIGHUP);
  EXPECT_THAT(*ListDirectory(directory.path()), ElementsAre("before"));
}

TEST(StagedOutputTest, AFileAppearsWholeAndReplacesOnlyWhenAsked) {
  const TemporaryDirectory directory;
  for (const bool replace : {false, false, true}) {
    const StagedOutput staged = StagedOutput::Begin(directory / "new").value();
    SetContents(staged.Path("whole"), replace ? "second" : "first");
    const bool is_there = PathExists(directory / "new");
    EXPECT_EQ(staged.Publish("whole", directory / "new", replace).ok(), replace || !is_there);
  }
  EXPECT_EQ(Contents(directory / "new"), "second");
  EXPECT_THAT(*ListDirectory(directory.path()), ElementsAre("new"));
}

TEST(StagedOutputTest, ASecondWriterIsRefusedByNameAndRemovesNothing) {
  const TemporaryDirectory directory;
  std::optional<OutputFolder> folder = OutputFolder::Take(directory / "folder").value();
  EXPECT_THAT(std::string(OutputFolder::Take(directory / "folder").status().message()),
              HasSubstr("another process is writing " + (directory / "folder")));
  {
    const StagedOutput staged = StagedOutput::Begin(directory / "new").value();
    SetContents(staged.Path("half"), "h");
    EXPECT_EQ(StagedOutput::Begin(directory / "new").status().code(), absl::StatusCode::kAborted);
    EXPECT_EQ(Contents(staged.Path("half")), "h");
  }
  folder.reset();
  EXPECT_TRUE(OutputFolder::Take(directory / "folder").ok());
  EXPECT_THAT(*ListDirectory(directory / "folder"), IsEmpty());
}

TEST(StagedOutputTest, WhatAKilledProcessLeftGoesAndTheUsersFolderStays) {
  const TemporaryDirectory directory;
  ASSERT_TRUE(MakeDirectories(directory / "new.partial").ok());
  SetContents(directory / "new.partial/mine", "m");
  EXPECT_EQ(StagedOutput::Begin(directory / "new").status().code(), absl::StatusCode::kAlreadyExists);
  SetContents(directory / "new.partial/.hadal.lock", "");
  const StagedOutput staged = StagedOutput::Begin(directory / "new").value();
  EXPECT_FALSE(PathExists(staged.Path("mine")));
}

TEST(StagedOutputTest, AnEmptyFileIsFreeAndWhatAClaimedRunWillWriteIsNot) {
  const TemporaryDirectory directory;
  SetContents(directory / "empty", "");
  EXPECT_TRUE(CheckOutput(directory / "empty", {}).ok());
  ASSERT_TRUE(MakeDirectories(directory / "run/checkpoints").ok());
  EXPECT_TRUE(CheckPlace(directory / "run/metrics.jsonl").ok());
  SetContents(directory / "run/checkpoints/attempt", "");
  EXPECT_FALSE(CheckPlace(directory / "run/metrics.jsonl").ok());
  ASSERT_TRUE(MakeDirectories(directory / "app").ok());
  SetContents(directory / "app/manifest.json", "{}");
  EXPECT_TRUE(CheckPlace(directory / "app/out").ok()) << "a manifest alone is no checkpoint";
}

}  // namespace
}  // namespace hadal
