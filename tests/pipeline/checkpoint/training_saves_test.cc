// When a run of one rank saves, and what it reports, over a real run directory.
#include "pipeline/checkpoint/training_checkpoints.h"

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "layers/parameter_store.h"
#include "runtime/clock.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/status_macros.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/recorded_syncs.h"
#include "tests/support/small_checkpoint.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_plan.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Listener : public MetricsSink {
 public:
  void OnCheckpoint(const CheckpointMetrics& metrics) override { saved.push_back(metrics); }
  void OnText(int64_t /*step*/, TextKind kind, std::string_view text) override {
    EXPECT_EQ(kind, TextKind::kWarning);
    warnings.emplace_back(text);
  }
  std::vector<int64_t> steps() const {
    std::vector<int64_t> result;
    for (const CheckpointMetrics& metrics : saved) result.push_back(metrics.step);
    return result;
  }

  std::vector<CheckpointMetrics> saved;
  std::vector<std::string> warnings;
};

class TrainingSavesTest : public ::testing::Test {
 protected:
  TrainingSavesTest()
      : plan_(TinyPlan()),
        pipeline_(
            MakePipelineLayout(plan_, {.micro_batches = 1, .source_tokens = 8, .target_tokens = 8}, {}, 1).value()),
        parameters_(plan_, {0, 1, 2, 3, 4, 5, 6, 7}, Purpose::kTraining, layout_),
        state_(plan_, pipeline_, /*stage=*/0, Purpose::kTraining, layout_),
        arena_(Arena::Allocate(layout_).value()),
        collectives_(world_.communicator(0), absl::Seconds(30)),
        saves_({.run_directory = run_.path(), .retention = {.keep_last = 0}}, state_, /*rank=*/0, collectives_,
               &listener_, &trace_) {
    parameters_.Bind(arena_);
    state_.Bind(arena_, parameters_);
    EXPECT_TRUE(saves_.Claim(0).ok());
  }

  // Until the thread's next call.
  static TrainingProgress& At(int64_t step) {
    thread_local TrainingProgress now;
    return now = {.step = step, .update = step};
  }

  TemporaryDirectory run_;
  const ModelPlan plan_;
  const PipelineLayout pipeline_;
  ArenaLayout layout_;
  ParameterStore parameters_;
  StageState state_;
  Arena arena_;
  InProcessWorld world_{1};
  Collectives collectives_;
  Listener listener_;
  TraceBuffer trace_;
  TrainingCheckpoints saves_;
};

TEST_F(TrainingSavesTest, ReportsACommittedSaveOnce) {
  ASSERT_TRUE(saves_.Begin(At(3), /*is_best=*/false).ok());
  for (int i = 0; i < 30000 && listener_.saved.empty(); ++i) {
    ASSERT_TRUE(saves_.Poll(At(4)).ok());
    absl::SleepFor(absl::Milliseconds(1));
  }
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(saves_.Poll(At(5)).ok());
  ASSERT_TRUE(saves_.Finish(At(6)).ok());
  EXPECT_THAT(listener_.steps(), ElementsAre(3));
  EXPECT_THAT(saves_.last_directory(), EndsWith("checkpoints/step_00000003"));
  EXPECT_EQ(listener_.saved[0].directory, saves_.last_directory());
  EXPECT_TRUE(std::filesystem::exists(saves_.last_directory() + "/manifest.json"));
  EXPECT_GE(listener_.saved[0].seconds, listener_.saved[0].stall_seconds);
}

TEST_F(TrainingSavesTest, OneSaveIsFinishedBeforeTheNextBegins) {
  ASSERT_TRUE(saves_.Begin(At(3), false).ok());
  ASSERT_TRUE(saves_.Begin(At(4), false).ok());
  EXPECT_THAT(listener_.steps(), ElementsAre(3));
  ASSERT_TRUE(saves_.Finish(At(4)).ok());
  EXPECT_THAT(listener_.steps(), ElementsAre(3, 4));
}

// From one save's beginning to the next one's.
TEST_F(TrainingSavesTest, ReportsTheIntervalBetweenSaves) {
  constexpr absl::Duration kPause = absl::Milliseconds(100);
  absl::SleepFor(kPause);
  const Stopwatch since_restart;
  ASSERT_TRUE(saves_.Claim(0).ok());
  absl::SleepFor(kPause);
  const Stopwatch watch;
  ASSERT_TRUE(saves_.Begin(At(3), false).ok());
  const double first = since_restart.Seconds();
  absl::SleepFor(kPause);
  ASSERT_TRUE(saves_.Begin(At(4), false).ok());
  const double most = watch.Seconds();
  ASSERT_TRUE(saves_.Finish(At(4)).ok());
  ASSERT_THAT(listener_.steps(), ElementsAre(3, 4));
  EXPECT_GE(listener_.saved[0].interval_seconds, absl::ToDoubleSeconds(kPause)) << "since the start";
  EXPECT_LE(listener_.saved[0].interval_seconds, first);
  EXPECT_GE(listener_.saved[1].interval_seconds, absl::ToDoubleSeconds(kPause));
  EXPECT_LE(listener_.saved[1].interval_seconds, most);
}

TEST_F(TrainingSavesTest, AtTheEndTheLastStepIsSavedUnlessItIsAlready) {
  ASSERT_TRUE(saves_.Begin(At(3), false).ok());
  ASSERT_TRUE(saves_.SaveAtEnd(At(3), false).ok()) << "under way";
  EXPECT_THAT(listener_.steps(), ElementsAre(3));
  ASSERT_TRUE(saves_.SaveAtEnd(At(5), false).ok());
  ASSERT_TRUE(saves_.SaveAtEnd(At(5), false).ok()) << "saved";
  EXPECT_THAT(listener_.steps(), ElementsAre(3, 5));
}

TEST_F(TrainingSavesTest, NothingIsSavedOfTheStepThatARunStartsFrom) {
  ASSERT_TRUE(saves_.Claim(7).ok());
  ASSERT_TRUE(saves_.SaveAtEnd(At(7), false).ok());
  EXPECT_THAT(listener_.saved, IsEmpty());
  EXPECT_EQ(saves_.last_directory(), "");
}

// A full disk: while training goes on a warning that names the last good checkpoint, at the end an error.
TEST_F(TrainingSavesTest, AFailedSaveIsAWarningUntilTheRunWouldEndWithoutIt) {
  ASSERT_TRUE(saves_.SaveAtEnd(At(2), false).ok());
  {
    const FileSizeLimit full(100);
    ASSERT_TRUE(saves_.Begin(At(3), false).ok());
    EXPECT_TRUE(saves_.Finish(At(4)).ok());
    EXPECT_THAT(listener_.warnings,
                ElementsAre(AllOf(HasSubstr("NO CHECKPOINT of step 3"), HasSubstr("step_00000002"))));
    EXPECT_FALSE(saves_.SaveAtEnd(At(4), false).ok());
  }
  EXPECT_THAT(listener_.steps(), ElementsAre(2));
  EXPECT_TRUE(saves_.SaveAtEnd(At(4), false).ok()) << "there is room again";
  EXPECT_THAT(listener_.steps(), ElementsAre(2, 4));
}

TEST_F(TrainingSavesTest, ForgetsABestWhoseSaveFailed) {
  TrainingProgress now = {.step = 2, .best = {{.step = 2, .score = 5}}};
  ASSERT_TRUE(saves_.SaveAtEnd(now, true).ok());
  const FileSizeLimit full(100);
  for (const std::string call : {"poll", "finish", "begin"}) {
    now = {.step = 3, .best = {{.step = 3, .score = 4}}};
    ASSERT_TRUE(saves_.Begin(now, true).ok());
    EXPECT_EQ(now.best_step(), 3) << "under way";
    ASSERT_TRUE(saves_.Finish(now).ok());
    EXPECT_EQ(now.best_step(), 3) << "the end of the run tries it again";
    now.step = 4;
    ASSERT_TRUE((call == "poll"     ? saves_.Poll(now)
                 : call == "finish" ? saves_.Finish(now)
                                    : saves_.Begin(now, false))
                    .ok());
    EXPECT_THAT(now.best, ElementsAre(ScoredStep{.step = 2, .score = 5})) << call;
  }
}

// Of the thread that writes, then of the one that commits.
TEST_F(TrainingSavesTest, WarnsWhenTheWriterRunsOutOfMemory) {
  for (const int syncs_before : {0, 1}) {
    listener_.warnings.clear();
    RecordedSyncs syncs;
    syncs.ThrowAfter(syncs_before);
    ASSERT_TRUE(saves_.Begin(At(3), false).ok());
    EXPECT_TRUE(saves_.Finish(At(4)).ok());
    EXPECT_THAT(listener_.warnings,
                ElementsAre(AllOf(HasSubstr("NO CHECKPOINT of step 3"), HasSubstr("not enough memory"))));
    syncs.ThrowAfter(syncs_before);
    EXPECT_EQ(saves_.SaveAtEnd(At(4), false).code(), absl::StatusCode::kResourceExhausted);
  }
  EXPECT_THAT(listener_.saved, IsEmpty());
  EXPECT_TRUE(saves_.SaveAtEnd(At(4), false).ok()) << "there is memory again";
}

TEST_F(TrainingSavesTest, WarnsOfAFailureThatPollFinds) {
  const FileSizeLimit full(100);
  ASSERT_TRUE(saves_.Begin(At(3), false).ok());
  for (int i = 0; i < 30000 && listener_.warnings.empty(); ++i) {
    ASSERT_TRUE(saves_.Poll(At(4)).ok());
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_THAT(listener_.warnings,
              ElementsAre(AllOf(HasSubstr("NO CHECKPOINT of step 3"), HasSubstr("the run has no checkpoint yet"))));
}

TEST_F(TrainingSavesTest, AResumedRunStillHasTheCheckpointThatItCameFrom) {
  ASSERT_TRUE(saves_.Claim(2).ok());
  const FileSizeLimit full(100);
  ASSERT_TRUE(saves_.Begin(At(3), false).ok());
  EXPECT_TRUE(saves_.Finish(At(4)).ok());
  EXPECT_THAT(listener_.warnings, ElementsAre(HasSubstr("the last good checkpoint is that of step 2")));
}

// As on every rank but 0.
TEST_F(TrainingSavesTest, SavesAndFailsWithoutASink) {
  TrainingCheckpoints quiet({.run_directory = run_.path()}, state_, /*rank=*/0, collectives_, nullptr, nullptr);
  ASSERT_TRUE(quiet.Claim(0).ok());
  {
    const FileSizeLimit full(100);
    ASSERT_TRUE(quiet.Begin(At(3), false).ok());
    EXPECT_TRUE(quiet.Finish(At(4)).ok());
  }
  EXPECT_TRUE(quiet.SaveAtEnd(At(4), false).ok());
  EXPECT_THAT(quiet.last_directory(), EndsWith("step_00000004"));
}

// A rank that says nothing any more, and a job that was aborted.
TEST_F(TrainingSavesTest, ARunWhoseRanksHaveLostEachOtherEnds) {
  for (const absl::StatusCode code : {absl::StatusCode::kDeadlineExceeded, absl::StatusCode::kUnavailable}) {
    for (const bool polls : {true, false}) {
      const TemporaryDirectory run;
      InProcessWorld world(2);
      const absl::Status status = world.Run([&](Communicator& communicator) -> absl::Status {
        std::optional<Collectives> collectives(std::in_place, communicator, absl::Seconds(30));
        TrainingCheckpoints saves({.run_directory = run.path()}, state_, communicator.rank(), *collectives, &listener_,
                                  &trace_);
        const absl::Status claimed = saves.Claim(0);
        if (communicator.rank() == 1) return absl::OkStatus();  // and not a word more
        HADAL_RETURN_IF_ERROR(claimed);
        HADAL_RETURN_IF_ERROR(saves.Begin(At(3), false));
        collectives.emplace(communicator, absl::Milliseconds(10));  // less patient from now on
        if (code == absl::StatusCode::kUnavailable) communicator.Abort(1);
        EXPECT_EQ((polls ? saves.Poll(At(4)) : saves.Finish(At(4))).code(), code) << polls;
        return absl::OkStatus();
      });
      EXPECT_TRUE(status.ok()) << status;
    }
  }
  EXPECT_THAT(listener_.warnings, IsEmpty());
  EXPECT_THAT(listener_.saved, IsEmpty());
}

TEST_F(TrainingSavesTest, EndsAfterATakeover) {
  const CheckpointCommitter other = SmallCommitter(run_.path());
  ASSERT_TRUE(saves_.Begin(At(3), false).ok());
  EXPECT_EQ(saves_.Finish(At(4)).code(), absl::StatusCode::kAborted);
  ASSERT_TRUE(saves_.Begin(At(5), false).ok());
  EXPECT_EQ(saves_.Begin(At(6), false).code(), absl::StatusCode::kAborted) << "found before the next begins";
  EXPECT_THAT(listener_.saved, IsEmpty());
}

// The other one removes what this job is writing: the files' errors are not the reason then.
TEST_F(TrainingSavesTest, EndsIfFilesFailAfterATakeover) {
  const CheckpointCommitter other = SmallCommitter(run_.path());
  const FileSizeLimit full(100);
  ASSERT_TRUE(saves_.Begin(At(3), false).ok());
  EXPECT_EQ(saves_.Finish(At(4)).code(), absl::StatusCode::kAborted);
  EXPECT_THAT(listener_.warnings, IsEmpty());
}

}  // namespace
}  // namespace hadal
