#include "tools/output/rank_log.h"

#include <gmock/gmock.h>

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/machine.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

std::vector<std::string> Lines(const std::string& path) {
  return absl::StrSplit(Contents(path), '\n', absl::SkipEmpty());
}

TEST(RankLog, EveryLineHasTheTimeInFrontAndEmptyOnesAreLeftOut) {
  const TemporaryDirectory directory;
  const auto log = RankLog::Open(directory.path() + "/run/logs", 12).value();
  log->Say("warning: one\n\ntwo\n");
  EXPECT_TRUE(log->Flush().ok());
  const std::string time = "20[0-9-]+T[0-9:.]+Z ";
  EXPECT_THAT(Lines(directory.path() + "/run/logs/rank_00012.log"),
              ElementsAre(MatchesRegex(time + "warning: one"), MatchesRegex(time + "two")));
}

TEST(RankLog, AResumedRunGoesOnInTheSameFile) {
  const TemporaryDirectory directory;
  for (const char* text : {"first", "second"}) (*RankLog::Open(directory.path(), 0))->Say(text);
  EXPECT_THAT(Lines(directory.path() + "/rank_00000.log"), ElementsAre(HasSubstr("first"), HasSubstr("second")));
  EXPECT_THAT(Contents(directory / "rank_00000.log"), Not(HasSubstr("\n\n")));
}

TEST(RankLog, TimesAreUniversal) {
  const TemporaryDirectory directory;
  const absl::Time before = absl::Now() - absl::Milliseconds(1);  // what is written is cut to milliseconds
  (*RankLog::Open(directory.path(), 0))->Say("now");
  const absl::Time after = absl::Now();
  absl::Time written;
  std::string error;
  const std::string text = Contents(directory / "rank_00000.log");
  ASSERT_TRUE(absl::ParseTime("%Y-%m-%dT%H:%M:%E*SZ", text.substr(0, text.find(' ')), &written, &error)) << error;
  EXPECT_LE(before, written);
  EXPECT_LE(written, after);
}

TEST(RankLog, ALineThatWasCutOffStaysALineOfItsOwn) {
  const TemporaryDirectory directory;
  std::ofstream(directory / "rank_00000.log") << "whole\ncut o";
  (*RankLog::Open(directory.path(), 0))->Say("next");
  EXPECT_THAT(Lines(directory / "rank_00000.log"), ElementsAre("whole", "cut o", HasSubstr("Z next")));
}

TEST(RankLog, APipeIsRefused) {
  const TemporaryDirectory directory;
  ASSERT_EQ(mkfifo((directory / "rank_00000.log").c_str(), 0600), 0);
  EXPECT_EQ(RankLog::Open(directory.path(), 0).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(RankLog, ThreadsDoNotMixTheirLines) {
  const TemporaryDirectory directory;
  const auto log = RankLog::Open(directory.path(), 0);
  ASSERT_TRUE(log.ok());
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&log, t] {
        for (int i = 0; i < 200; ++i) (*log)->Say(absl::StrCat("thread ", t, " line ", i));
      });
    }
  }
  const auto lines = Lines(directory.path() + "/rank_00000.log");
  EXPECT_THAT(lines, SizeIs(800));
  for (const std::string& line : lines) EXPECT_THAT(line, MatchesRegex(".*Z thread [0-3] line [0-9]+"));
}

TEST(RankLog, AStreamSaysWholeLines) {
  const TemporaryDirectory directory;
  const auto log = RankLog::Open(directory.path(), 0).value();
  RankLogStream stream(*log);
  stream << "step " << 1 << '\n' << "not yet";
  EXPECT_THAT(Lines(directory.path() + "/rank_00000.log"), ElementsAre(HasSubstr("Z step 1")));
  stream << " but now\n";
  EXPECT_THAT(Lines(directory.path() + "/rank_00000.log"),
              ElementsAre(HasSubstr("Z step 1"), HasSubstr("Z not yet but now")));
  stream.put('b').put('y').put('\n');
  EXPECT_THAT(Lines(directory.path() + "/rank_00000.log"), Contains(HasSubstr("Z by")));
  stream << "two\nlines\n";
  EXPECT_THAT(Lines(directory.path() + "/rank_00000.log"), Contains(HasSubstr("Z lines")));
}

TEST(RankLog, WhatDoesNotFitLeavesNoHalfALine) {
  const TemporaryDirectory directory;
  const auto log = RankLog::Open(directory.path(), 0).value();
  log->Say("first");
  {
    const FileSizeLimit limit(40);
    log->Say("second, of many words");
  }
  log->Say("third");
  EXPECT_THAT(Lines(directory.path() + "/rank_00000.log"), ElementsAre(HasSubstr("Z first"), HasSubstr("Z third")));
  EXPECT_EQ(log->Flush().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(log->Flush().ok()) << "it is handed out once";
}

TEST(StartLines, SayWhereAndHowWithoutSecrets) {
  const char* const environment[] = {"OMPI_MCA_btl=self,\nvader", "NCCL_TOKEN=secret", "NCCL_DEBUG=INFO", nullptr};
  const std::string lines = StartLines(
      {.version = "0.1.0", .rank = 3, .ranks = 12, .threads = 2, .stage = 1, .stages = 4, .replica = 2, .replicas = 3},
      environment);
  EXPECT_THAT(lines,
              AllOf(StartsWith(absl::StrCat("start: hadal 0.1.0, rank 3 of 12 (stage 1 of 4, replica 2 of 3) on ",
                                            HostName(), ", process ", getpid(), ", 2 threads")),
                    HasSubstr(absl::StrCat("\nstarted in ", std::filesystem::current_path().string(), " as: ")),
                    HasSubstr(", 2 threads on CPUs "), HasSubstr("rank_log_test"),
                    HasSubstr("\nenvironment: NCCL_DEBUG=INFO OMPI_MCA_btl=self, vader\n")));
  EXPECT_THAT(lines, Not(HasSubstr("secret")));
  EXPECT_THAT(lines, AllOf(Not(HasSubstr(" \n")), Not(HasSubstr(std::string(1, '\0'))))) << "of the command line";
  const char* const nothing[] = {"HOME=/root", nullptr};
  EXPECT_THAT(StartLines({.version = "0.1.0"}, nothing),
              AllOf(StartsWith("start: hadal 0.1.0, rank 0 of 1 on "), HasSubstr(", 1 thread on CPUs "),
                    Not(HasSubstr("environment"))));
}

}  // namespace
}  // namespace hadal
