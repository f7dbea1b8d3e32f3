// Saving and loading of one rank's state over a real run directory; more ranks: tests/integration/resume_grid_test.cc.
#include "pipeline/checkpoint/training_checkpoints.h"

#include <cerrno>
#include <latch>
#include <numeric>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "layers/parameter_store.h"
#include "pipeline/checkpoint/checkpoint_reader.h"
#include "pipeline/checkpoint/run_owner.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"
#include "tests/support/recorded_syncs.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_plan.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ModelPlan Plan(int32_t d_ff, int32_t decoder_layers, bool muon) {
  ModelPlan plan = TinyPlan({.decoder_layers = decoder_layers, .d_ff = d_ff});
  plan.muon_steps = muon ? 5 : 0;
  return plan;
}

std::vector<int32_t> All(const ModelPlan& plan) {
  std::vector<int32_t> sublayers(plan.sublayers.size());
  std::iota(sublayers.begin(), sublayers.end(), 0);
  return sublayers;
}

class Listener : public MetricsSink {
 public:
  void OnCheckpoint(const CheckpointMetrics& metrics) override { last = metrics; }
  void OnText(int64_t /*step*/, TextKind /*kind*/, std::string_view text) override { warning = text; }

  CheckpointMetrics last;
  std::string warning;
};

// One attempt of a run.
struct Attempt {
  // `rank`: the one whose state this is, of so many `replicas`.
  explicit Attempt(const std::string& run_directory, int32_t d_ff = 8, RetentionPolicy retention = {.keep_last = 0},
                   int replicas = 1, int rank = 0, int32_t decoder_layers = 1, bool muon = false)
      : plan(Plan(d_ff, decoder_layers, muon)),
        pipeline(MakePipelineLayout(plan, {.micro_batches = 2, .source_tokens = 8, .target_tokens = 8},
                                    {.replicas = replicas}, replicas, rank)
                     .value()),
        parameters(plan, All(plan), Purpose::kTraining, layout),
        state(plan, pipeline, /*stage=*/0, Purpose::kTraining, layout),
        arena(Arena::Allocate(layout).value()),
        checkpoints({.run_directory = run_directory,
                     .retention = retention,
                     .attachments = {{.name = "vocabulary.txt", .contents = "a 1\nb 1\n"}},
                     .warn = [this](std::string_view text) { warnings.emplace_back(text); }},
                    state, /*rank=*/0, collectives, &listener, /*trace=*/nullptr) {
    parameters.Bind(arena);
    state.Bind(arena, parameters);
  }

  // Weights of `value`, moments of twice and three times that.
  void Fill(float value) {
    for (const StateSlice& slice : state.slices()) {
      std::fill_n(slice.weight.data, slice.weight.size, value);
      std::fill_n(slice.first_moment.data, slice.first_moment.size, 2 * value);
      std::fill_n(slice.second_moment.data, slice.second_moment.size, 3 * value);
    }
  }
  // The last element of each kind.
  std::vector<float> Values() const {
    const StateSlice& slice = state.slices().back();
    return {slice.weight[slice.weight.size - 1], slice.first_moment[slice.first_moment.size - 1],
            slice.second_moment[slice.second_moment.size - 1]};
  }
  absl::StatusOr<CheckpointMetrics> Save(int64_t step, float value) {
    Fill(value);
    TrainingProgress now{.step = step, .update = step};
    HADAL_RETURN_IF_ERROR(checkpoints.SaveAtEnd(now, /*is_best=*/false));
    return listener.last;
  }

  const ModelPlan plan;
  const PipelineLayout pipeline;
  ArenaLayout layout;
  ParameterStore parameters;
  StageState state;
  Arena arena;
  InProcessWorld world{1};
  Collectives collectives{world.communicator(0), absl::Seconds(30)};
  std::vector<std::string> warnings;
  Listener listener;
  TrainingCheckpoints checkpoints;
};

class TrainingCheckpointsTest : public ::testing::Test {
 protected:
  std::string Directory(int64_t step) { return run_ / ("checkpoints/" + CheckpointName(step)); }
  void DamageWeights(int64_t step) {
    const std::string path = Directory(step) + "/rank_00000.safetensors";
    FlipBit(path, Contents(path).size() - 1);
  }
  // Steps 3 and 4 with weights of 1 and 2.
  void SaveTwo() {
    Attempt attempt(run_.path());
    ASSERT_TRUE(attempt.checkpoints.Claim(0).ok());
    ASSERT_TRUE(attempt.Save(3, 1).ok());
    ASSERT_TRUE(attempt.Save(4, 2).ok());
    EXPECT_THAT(attempt.warnings, IsEmpty());
  }

  TemporaryDirectory run_;
};

TEST_F(TrainingCheckpointsTest, ARunWithoutCheckpointsStartsAnew) {
  Attempt attempt(run_.path());
  const auto progress = attempt.checkpoints.LoadLatest();
  EXPECT_FALSE(progress->has_value());
}

TEST_F(TrainingCheckpointsTest, TheNewestComesBackWithItsMoments) {
  SaveTwo();
  Attempt attempt(run_.path());
  const auto progress = attempt.checkpoints.LoadLatest();
  EXPECT_EQ(progress->value().step, 4);
  EXPECT_THAT(attempt.Values(), ElementsAre(2, 4, 6));
}

// What was best before counts on where a better one could not be saved.
TEST_F(TrainingCheckpointsTest, AResumedRunGoesBackToTheBestThatWasLoaded) {
  {
    Attempt attempt(run_.path());
    ASSERT_TRUE(attempt.checkpoints.Claim(0).ok());
    TrainingProgress now{.step = 3, .best = {{.step = 3, .score = 5}}};
    ASSERT_TRUE(attempt.checkpoints.SaveAtEnd(now, /*is_best=*/true).ok());
  }
  for (const bool by_name : {false, true}) {
    Attempt attempt(run_.path());
    TrainingProgress now = by_name ? attempt.checkpoints.Load(FindNamed(Directory(3)), LoadedState::kAll).value()
                                   : attempt.checkpoints.LoadLatest().value().value();
    ASSERT_TRUE(attempt.checkpoints.Claim(3).ok());
    now.step = 4;
    now.best = {{.step = 4, .score = 4}};
    RecordedSyncs syncs;
    syncs.FailNext(ENOSPC);
    ASSERT_TRUE(attempt.checkpoints.Begin(now, /*is_best=*/true).ok());
    now.step = 5;
    ASSERT_TRUE(attempt.checkpoints.Finish(now).ok());
    EXPECT_THAT(now.best, ElementsAre(ScoredStep{.step = 3, .score = 5})) << by_name;
  }
}

TEST_F(TrainingCheckpointsTest, ARunThatStartsFromWeightsHasNoMoments) {
  SaveTwo();
  Attempt attempt(run_.path());
  ASSERT_TRUE(attempt.checkpoints.Load(FindNamed(Directory(3)), LoadedState::kWeights).ok());
  EXPECT_THAT(attempt.Values(), ElementsAre(1, 0, 0));
}

TEST_F(TrainingCheckpointsTest, ADeeperModelStartsFromCopiesOfPartOfAStep) {
  SaveTwo();
  Attempt attempt(run_.path(), 8, {.keep_last = 0}, 1, 0, /*decoder_layers=*/2);
  ASSERT_TRUE(attempt.checkpoints.Load(FindNamed(Directory(3)), LoadedState::kWeightsOfShallower).ok());
  for (const StateSlice& slice : attempt.state.slices()) {
    const std::string name = attempt.plan.ParameterName(slice.parameter);
    const bool part = absl::StartsWith(name, "decoder.layers.") &&
                      (absl::StrContains(name, "out_proj.") || absl::StrContains(name, "fc2.") ||
                       absl::EndsWith(name, "_layer_norm.bias"));
    EXPECT_EQ(slice.weight[0], part ? 0.5f : 1.0f) << name;
    EXPECT_EQ(slice.first_moment[0], 0) << name;
  }
}

TEST_F(TrainingCheckpointsTest, ADamagedOneIsRefusedAloudAndTheOneBeforeTaken) {
  SaveTwo();
  DamageWeights(4);
  Attempt attempt(run_.path());
  const auto progress = attempt.checkpoints.LoadLatest();
  EXPECT_EQ(progress->value().step, 3);
  EXPECT_THAT(attempt.Values(), ElementsAre(1, 2, 3));
  EXPECT_THAT(attempt.warnings, ElementsAre(HasSubstr("CHECKPOINT REFUSED: " + Directory(4))));
}

TEST_F(TrainingCheckpointsTest, OneThatItsOwnerRemovesMeanwhileIsChosenAgain) {
  SaveTwo();
  Attempt attempt(run_.path());
  const auto progress = attempt.checkpoints.LoadLatest([this](int64_t before_step, const std::string& /*copy*/) {
    absl::StatusOr<FoundCheckpoint> found = FindLatest(run_.path(), {.before_step = before_step});
    std::filesystem::remove_all(Directory(4));
    return found;
  });
  ASSERT_TRUE(progress.ok()) << progress.status();
  EXPECT_EQ(progress->value().step, 3);
  EXPECT_THAT(attempt.Values(), ElementsAre(1, 2, 3));
  EXPECT_THAT(attempt.warnings, IsEmpty());
}

TEST_F(TrainingCheckpointsTest, ADamagedVocabularyIsDamage) {
  SaveTwo();
  FlipBit(Directory(4) + "/vocabulary.txt", 0);
  Attempt attempt(run_.path());
  EXPECT_EQ(attempt.checkpoints.LoadLatest().value().value().step, 3);
  EXPECT_THAT(attempt.warnings, ElementsAre(HasSubstr("vocabulary.txt")));
}

TEST_F(TrainingCheckpointsTest, WhereAllAreDamagedTheRunDoesNotStartAnew) {
  SaveTwo();
  DamageWeights(3);
  DamageWeights(4);
  Attempt attempt(run_.path());
  EXPECT_EQ(attempt.checkpoints.LoadLatest().status().code(), absl::StatusCode::kDataLoss);
}

// All ranks that load one checkpoint print its damage once.
TEST(AdviseAnotherCheckpoint, ACommonErrorStaysOne) {
  const absl::Status advised = AdviseAnotherCheckpoint(AsCommonError(absl::DataLossError("torn")));
  EXPECT_TRUE(IsCommonError(advised));
  EXPECT_THAT(std::string(advised.message()), AllOf(HasSubstr("torn; "), HasSubstr("checkpoint verify")));
}

TEST_F(TrainingCheckpointsTest, AnotherModelIsAnErrorAndNoReasonToLookFurther) {
  SaveTwo();
  Attempt attempt(run_.path(), /*d_ff=*/16);
  const absl::Status status = attempt.checkpoints.LoadLatest().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("of another model"));
  EXPECT_THAT(attempt.warnings, IsEmpty());
}

// Of a matrix its momentum comes back, of all others both moments; with another optimizer its weights alone.
TEST_F(TrainingCheckpointsTest, MuonsMomentumIsNoAdamsMoment) {
  const auto attempt = [&](bool muon) {
    return std::make_unique<Attempt>(run_.path(), 8, RetentionPolicy{.keep_last = 0}, 1, 0, 1, muon);
  };
  const auto saving = attempt(true);
  ASSERT_TRUE(saving->checkpoints.Claim(0).ok());
  ASSERT_TRUE(saving->Save(3, 1).ok());
  const auto resumed = attempt(true);
  ASSERT_TRUE(resumed->checkpoints.LoadLatest().ok());
  int matrices = 0;
  for (const StateSlice& slice : resumed->state.slices()) {
    const bool muon = resumed->plan.uses_muon(slice.parameter);
    matrices += muon ? 1 : 0;
    EXPECT_EQ(slice.first_moment[0], 2);
    EXPECT_EQ(slice.second_moment.empty(), muon);
    if (!muon) {
      EXPECT_EQ(slice.second_moment[0], 3);
    }
  }
  EXPECT_EQ(matrices, 4 + 2 + 8 + 2) << "encoder, decoder";
  const auto adam = attempt(false);
  const absl::Status refused = adam->checkpoints.LoadLatest().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("optimizer.kind = \"muon\", the run has \"adam\""));
  ASSERT_TRUE(adam->checkpoints.Load(FindNamed(Directory(3)), LoadedState::kWeights).ok());
  EXPECT_THAT(adam->Values(), ElementsAre(1, 0, 0));
}

TEST_F(TrainingCheckpointsTest, GoingBackSaysWhatItSetsAside) {
  SaveTwo();
  Attempt attempt(run_.path());
  ASSERT_TRUE(attempt.checkpoints.Claim(3).ok());
  EXPECT_THAT(attempt.warnings, ElementsAre(HasSubstr(Directory(4))));
  EXPECT_EQ(attempt.checkpoints.LoadLatest().value().value().step, 3);
}

TEST_F(TrainingCheckpointsTest, AnotherRunsCheckpointSetsOwnStepsAside) {
  SaveTwo();
  const TemporaryDirectory other;
  {
    Attempt attempt(other.path());
    ASSERT_TRUE(attempt.checkpoints.Claim(0).ok());
    ASSERT_TRUE(attempt.Save(4, 7).ok());
  }
  Attempt attempt(run_.path());
  auto progress = attempt.checkpoints.Load(FindNamed(other / "checkpoints/latest"), LoadedState::kAll);
  ASSERT_TRUE(attempt.checkpoints.Claim(4).ok());
  EXPECT_TRUE(ListCheckpoints(run_.path())->empty());
  EXPECT_FALSE(attempt.checkpoints.IsSaved(*progress)) << "this run has no checkpoint";
  ASSERT_TRUE(attempt.checkpoints.SaveAtEnd(*progress, /*is_best=*/false).ok());
  EXPECT_EQ(FindLatest(run_.path())->checkpoint.step, 4);
}

// What was set aside, or a copy of the user's.
TEST_F(TrainingCheckpointsTest, OneOfAnotherNameSetsTheStepOfItsOwnAside) {
  SaveTwo();
  const std::string kept = run_ / "checkpoints/step_00000004_good";
  std::filesystem::copy(Directory(4), kept);
  Attempt attempt(run_.path());
  const auto progress = attempt.checkpoints.Load(FindNamed(kept), LoadedState::kAll);
  ASSERT_TRUE(attempt.checkpoints.Claim(4).ok());
  EXPECT_THAT(attempt.warnings, ElementsAre(HasSubstr(Directory(4))));
  EXPECT_EQ(FindLatest(run_.path())->checkpoint.step, 3);
  EXPECT_FALSE(attempt.checkpoints.IsSaved(*progress));
}

// A link to nowhere stands where a checkpoint is to go back to.
TEST_F(TrainingCheckpointsTest, LeftoversThatCannotBeRemovedAreAWarning) {
  SaveTwo();
  const std::string aside = Directory(2) + ".replaced." + NewCheckpointAttempt();
  ASSERT_TRUE(MakeDirectories(aside).ok());
  std::filesystem::create_symlink("nowhere", Directory(2));
  Attempt attempt(run_.path());
  const absl::Status claimed = attempt.checkpoints.Claim(4);
  EXPECT_TRUE(claimed.ok()) << claimed;
  EXPECT_THAT(attempt.warnings, ElementsAre(HasSubstr("left half-written could not be removed")));
  EXPECT_TRUE(attempt.Save(5, 3).ok());
}

TEST_F(TrainingCheckpointsTest, AnAttemptThatIsOvertakenWhileItClaimsSetsNothingAside) {
  SaveTwo();
  Attempt first(run_.path()), second(run_.path());
  RecordedSyncs syncs;
  syncs.Before("/checkpoints", [&] { EXPECT_TRUE(second.checkpoints.Claim(4).ok()); });
  EXPECT_EQ(first.checkpoints.Claim(3).code(), absl::StatusCode::kAborted);
  EXPECT_THAT(first.warnings, IsEmpty());
  EXPECT_EQ(FindLatest(run_.path())->checkpoint.step, 4);
}

// It was stopped between its claim and what follows, as a suspended job is.
TEST_F(TrainingCheckpointsTest, AnEarlierOwnerMovesNothingOfALaterOne) {
  SaveTwo();
  Attempt first(run_.path()), second(run_.path());
  ASSERT_TRUE(first.checkpoints.Claim(4).ok());
  ASSERT_TRUE(second.checkpoints.Claim(4).ok());
  const auto moved = SetAsideLaterCheckpoints(run_.path(), 3, first.checkpoints.attempt());
  EXPECT_EQ(moved.status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(ListCheckpoints(run_.path())->size(), 2u);
  EXPECT_EQ(*ReadCheckpointPointer(run_.path(), CheckpointPointer::kLatest), 4);
}

TEST_F(TrainingCheckpointsTest, ACheckpointThatWasSetAsideSinceItWasLoadedIsNotContinued) {
  SaveTwo();
  const std::string aside = Directory(4) + ".abandoned.another";
  for (const bool by_name : {false, true}) {
    Attempt attempt(run_.path());
    ASSERT_TRUE(by_name ? attempt.checkpoints.Load(FindNamed(Directory(4)), LoadedState::kAll).ok()
                        : attempt.checkpoints.LoadLatest().ok());
    const std::string owner = ReadOwner(run_.path())->value().attempt;
    std::filesystem::rename(Directory(4), aside);
    const absl::Status claimed = attempt.checkpoints.Claim(4);
    EXPECT_EQ(claimed.code(), absl::StatusCode::kAborted);
    EXPECT_THAT(std::string(claimed.message()), HasSubstr("moved or removed " + Directory(4)));
    EXPECT_EQ(ReadOwner(run_.path())->value().attempt, owner);
    std::filesystem::rename(aside, Directory(4));
  }
}

TEST_F(TrainingCheckpointsTest, AnAttemptThatBeganSinceTheSearchKeepsTheDirectory) {
  Attempt first(run_.path());
  ASSERT_TRUE(first.checkpoints.Claim(0).ok());
  TrainingCheckpoints second({.run_directory = run_.path(), .predecessor = ""}, first.state, 0, first.collectives,
                             nullptr, nullptr);
  EXPECT_EQ(second.Claim(0).code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(first.checkpoints.OwnershipLost().ok());
}

TEST_F(TrainingCheckpointsTest, OldOnesThatCannotBeRemovedAreAWarning) {
  Attempt attempt(run_.path(), 8, {.keep_last = 1});
  ASSERT_TRUE(attempt.checkpoints.Claim(0).ok());
  SetContents(run_ / "checkpoints/best", "rubbish");
  ASSERT_TRUE(attempt.Save(3, 1).ok());
  EXPECT_THAT(attempt.warnings, ElementsAre(HasSubstr("old checkpoints could not be removed")));
}

TEST_F(TrainingCheckpointsTest, AFailedSaveLeavesNothingHalfWritten) {
  SaveTwo();
  Attempt attempt(run_.path());
  ASSERT_TRUE(attempt.checkpoints.Claim(4).ok());
  {
    RecordedSyncs syncs;
    syncs.FailNext(ENOSPC);
    EXPECT_EQ(attempt.Save(5, 3).status().code(), absl::StatusCode::kResourceExhausted);
  }
  EXPECT_FALSE(attempt.checkpoints.saving());
  EXPECT_THAT(*ListDirectory(run_ / "checkpoints"), ElementsAre("attempt", "latest", "step_00000003", "step_00000004"));
  const auto saved = attempt.Save(6, 3);
  EXPECT_EQ(saved->step, 6);
  EXPECT_EQ(saved->directory, Directory(6));
}

// Votes until no rank is busy any more.
absl::Status AwaitAll(Collectives& collectives) {
  absl::StatusOr<bool> busy = true;
  while (busy.ok() && *busy) busy = collectives.AnyRank(false, "busy");
  return busy.status();
}

// Takes part in so many of a save's exchanges, as a rank does that waits for all others.
absl::Status TakePart(Collectives& collectives, int exchanges) {
  if (exchanges > 0) HADAL_RETURN_IF_ERROR(AwaitAll(collectives));
  if (exchanges > 1) HADAL_RETURN_IF_ERROR(collectives.AllOk(absl::OkStatus(), "written"));
  if (exchanges > 2) HADAL_RETURN_IF_ERROR(collectives.AllGather(WrittenFile().ToString(), "files").status());
  if (exchanges > 3) HADAL_RETURN_IF_ERROR(AwaitAll(collectives));
  return absl::OkStatus();
}

// Whichever exchange fails. Another save can begin, and does not meet what the threads of this one still write.
TEST_F(TrainingCheckpointsTest, ASaveIsOverWhenTheRanksHaveLostEachOther) {
  for (const auto& [polls, exchanges] :
       std::vector<std::pair<bool, int>>{{true, 0}, {false, 0}, {false, 1}, {false, 2}, {false, 3}, {false, 4}}) {
    const TemporaryDirectory run;
    const Attempt attempt(run.path());
    InProcessWorld world(2);
    std::latch claimed(2);  // nobody is lost before both have begun
    const absl::Status status = world.Run([&](Communicator& communicator) -> absl::Status {
      Collectives collectives(communicator, absl::Seconds(30));
      Listener listener;
      TrainingCheckpoints checkpoints({.run_directory = run.path()}, attempt.state, communicator.rank(), collectives,
                                      &listener, /*trace=*/nullptr);
      const absl::Status claim = checkpoints.Claim(0);
      claimed.arrive_and_wait();
      HADAL_RETURN_IF_ERROR(claim);
      if (communicator.rank() == 1) {
        HADAL_RETURN_IF_ERROR(TakePart(collectives, exchanges));
        communicator.Abort(1);
        return absl::OkStatus();
      }
      TrainingProgress now{.step = 3};
      EXPECT_TRUE(checkpoints.Begin(now, /*is_best=*/false).ok());
      const absl::Status lost = polls ? checkpoints.Poll(now) : checkpoints.Finish(now);
      // After four, rank 0 may first find that rank 1's file has no name: a failed save, which alone ends no run.
      const bool warned = exchanges == 4 && listener.warning.find("the field name is \"\"") != std::string::npos;
      EXPECT_TRUE(!lost.ok() || warned) << (polls ? "poll" : "finish") << ", after " << exchanges << " exchanges";
      EXPECT_EQ(checkpoints.last_directory(), "");
      EXPECT_FALSE(checkpoints.saving());
      now.step = 4;
      EXPECT_TRUE(checkpoints.Begin(now, /*is_best=*/false).ok());
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
  }
}

// Each has a folder of its name, and the second host's has the record of another attempt.
TEST_F(TrainingCheckpointsTest, ARunDirectoryThatTheRanksDoNotShareIsRefusedBeforeAnyStep) {
  const TemporaryDirectory elsewhere;
  ASSERT_TRUE(Attempt(elsewhere.path()).checkpoints.Claim(0).ok());
  const Attempt attempt(run_.path());
  InProcessWorld world(2);
  const absl::Status status = world.Run([&](Communicator& communicator) -> absl::Status {
    Collectives collectives(communicator, absl::Seconds(30));
    TrainingCheckpoints checkpoints(
        {.run_directory = communicator.rank() == 0 ? run_.path() : elsewhere.path(), .sight_seconds = 0}, attempt.state,
        communicator.rank(), collectives, /*sink=*/nullptr, /*trace=*/nullptr);
    return checkpoints.Claim(0);
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("put it on a file system that all hosts share"));
}

// The ranks' patience is for ranks that say nothing: a file, a manifest or a removal may take longer.
TEST_F(TrainingCheckpointsTest, ASlowDiskIsNoHang) {
  for (const char* const slow : {"rank_00001.safetensors", "manifest.json"}) {
    const TemporaryDirectory run;
    RecordedSyncs syncs;
    syncs.Before(slow, [] { absl::SleepFor(absl::Seconds(12)); });
    InProcessWorld world(2);
    const absl::Status status = world.Run([&](Communicator& communicator) -> absl::Status {
      Attempt attempt(run.path(), 8, {.keep_last = 0}, /*replicas=*/2, communicator.rank());
      std::optional<Collectives> collectives(std::in_place, communicator, absl::Seconds(30));
      TrainingCheckpoints checkpoints({.run_directory = run.path()}, attempt.state, communicator.rank(), *collectives,
                                      communicator.rank() == 0 ? &attempt.listener : nullptr, /*trace=*/nullptr);
      HADAL_RETURN_IF_ERROR(checkpoints.Claim(0));
      attempt.Fill(1);
      collectives.emplace(communicator, absl::Seconds(10));  // less patience from now on
      TrainingProgress now{.step = 3, .update = 3};
      HADAL_RETURN_IF_ERROR(checkpoints.SaveAtEnd(now, /*is_best=*/false));
      if (communicator.rank() == 0) {
        EXPECT_GE(attempt.listener.last.stall_seconds, 11.9) << "training was held up by it";
      }
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << slow << ": " << status;
    EXPECT_EQ(FindLatest(run.path(), {.need_moments = true})->checkpoint.step, 3) << slow;
  }
}

// Of this save alone.
TEST_F(TrainingCheckpointsTest, ASaveTakesAtLeastAsLongAsItHeldTrainingUp) {
  Attempt attempt(run_.path());
  ASSERT_TRUE(attempt.checkpoints.Claim(0).ok());
  for (int64_t step = 1; step <= 4; ++step) {
    const auto saved = attempt.Save(step, 1);
    EXPECT_GT(saved->stall_seconds, 0);
    EXPECT_LE(saved->stall_seconds, saved->seconds);
  }
}

}  // namespace
}  // namespace hadal
