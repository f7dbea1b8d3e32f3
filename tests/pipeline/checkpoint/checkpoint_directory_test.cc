#include "pipeline/checkpoint/checkpoint_directory.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <initializer_list>

#include "absl/strings/str_replace.h"
#include "pipeline/checkpoint/checkpoint_manifest.h"
#include "runtime/crc32c.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "tests/support/open_files_limit.h"
#include "tests/support/recorded_syncs.h"
#include "tests/support/saved_steps.h"
#include "tests/support/small_checkpoint.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class CheckpointDirectoryTest : public testing::Test {
 protected:
  // Saves a model small enough to save often.
  void SaveStep(CheckpointCommitter& committer, int64_t step, bool is_best = false, int64_t best_step = -1) {
    const auto file = WriteRankFile(committer, step, 0, Slices());
    TrainingProgress progress{.step = step};
    if (best_step >= 0) progress.best = {{.step = best_step}};
    const auto result = committer.Commit({.progress = progress, .files = {*file}, .is_best = is_best});
    EXPECT_TRUE(result->retention.ok()) << result->retention;
  }
  CheckpointCommitter Committer(const RetentionPolicy& retention = {}) {
    CheckpointCommitter committer({.run_directory = run_.path(),
                                   .attempt = NewCheckpointAttempt(),
                                   .parameters = parameters_,
                                   .retention = retention});
    EXPECT_TRUE(committer.Claim().ok());
    return committer;
  }
  // A committer that has saved these steps.
  CheckpointCommitter Saved(std::initializer_list<int64_t> steps) {
    CheckpointCommitter committer = Committer();
    for (const int64_t step : steps) SaveStep(committer, step);
    return committer;
  }
  std::string Owner() const { return ReadOwner(run_.path())->value().attempt; }
  std::vector<SliceState> Slices() {
    const Vector view(values_.data(), 4);
    return {{.parameter = 0, .slice = 0, .weight = view, .first_moment = view, .second_moment = view}};
  }
  std::string Directory(int64_t step) { return run_ / ("checkpoints/" + CheckpointName(step)); }
  // As if another version had written it.
  void SetFormat(int64_t step, int32_t format) {
    const std::string path = Directory(step) + "/manifest.json";
    std::string text = Contents(path);
    text = text.substr(0, text.rfind(kManifestCrcField));
    text = absl::StrReplaceAll(
        text, {{absl::StrCat("\"format\": ", kCheckpointFormat, ","), absl::StrCat("\"format\": ", format, ",")}});
    SetContents(path, absl::StrCat(text, kManifestCrcField, Crc32c(text.data(), text.size()), "\n}\n"));
  }

  TemporaryDirectory run_;
  std::vector<CheckpointParameter> parameters_ = {{.name = "p", .rows = 4, .columns = 1, .is_vector = true}};
  std::vector<float> values_ = {1, 2, 3, 4};
};

TEST_F(CheckpointDirectoryTest, NamesAreExact) {
  EXPECT_EQ(CheckpointName(1000), "step_00001000");
  EXPECT_EQ(CheckpointName(123456789), "step_123456789");
  EXPECT_EQ(ParseCheckpointName("step_00001000"), 1000);
  EXPECT_EQ(ParseCheckpointName("step_123456789"), 123456789);
  for (const char* name :
       {"", "step_", "step_1000", "step_00001000.tmp.a", "step_0000100x", "step_-0001000", "step_000001000",
        "step_99999999999999999999", "latest", "../step_00001000", "step_ 0001000", "step_+0001000"}) {
    EXPECT_EQ(ParseCheckpointName(name), std::nullopt) << name;
  }
}

TEST_F(CheckpointDirectoryTest, FindsNoneInARunWithoutCheckpoints) {
  EXPECT_TRUE(SavedSteps(run_.path()).empty());
  EXPECT_EQ(FindLatest(run_.path()).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadCheckpointPointer(run_.path(), CheckpointPointer::kLatest).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(CheckpointDirectoryTest, LatestAndBestAreRelativeLinks) {
  CheckpointCommitter committer = Committer();
  SaveStep(committer, 10, true);
  SaveStep(committer, 20);
  EXPECT_EQ(std::filesystem::read_symlink(run_ / "checkpoints/latest"), "step_00000020");
  EXPECT_EQ(*ReadCheckpointPointer(run_.path(), CheckpointPointer::kLatest), 20);
  EXPECT_EQ(*ReadCheckpointPointer(run_.path(), CheckpointPointer::kBest), 10);
}

// Where no checkpoint says what was best before, what cannot be read goes, or retention would never remove anything.
TEST_F(CheckpointDirectoryTest, RemovesAnUnreadableBest) {
  Saved({10, 20});
  SetContents(run_ / "checkpoints/best", "rubbish");
  ASSERT_TRUE(SetAsideLaterCheckpoints(run_.path(), 20, Owner()).ok());
  EXPECT_TRUE(ApplyRetention(run_.path(), {.keep_last = 1}).ok());
  EXPECT_THAT(SavedSteps(run_.path()), ElementsAre(20));
  ASSERT_TRUE(MakeDirectories(run_ / "checkpoints/best/of_somebody").ok());
  ASSERT_TRUE(SetAsideLaterCheckpoints(run_.path(), 20, Owner()).ok());
  EXPECT_TRUE(PathExists(run_ / ("checkpoints/best.replaced." + Owner() + "/of_somebody")));
}

TEST_F(CheckpointDirectoryTest, SyncsTheFolderBeforeTheFirstCheckpoint) {
  const RecordedSyncs syncs;
  Committer();
  ASSERT_GE(syncs.paths().size(), 3u);
  EXPECT_EQ(syncs.paths().front(), run_.path());
  EXPECT_EQ(syncs.paths().back(), run_ / "checkpoints");
}

// Whatever is lost after it, a checkpoint that was committed is there: its files, then their directory, then its name,
// then the pointers.
TEST_F(CheckpointDirectoryTest, CommitSyncsFilesAndDirectories) {
  CheckpointCommitter committer = Committer();
  const std::string parent = run_ / "checkpoints";
  const RecordedSyncs syncs;
  const auto file = WriteRankFile(committer, 10, 0, Slices());
  ASSERT_TRUE(committer
                  .Commit({.progress = {.step = 10},
                           .files = {*file},
                           .attachments = {{.name = "vocabulary.txt", .contents = "x"}},
                           .is_best = true})
                  .ok());
  const std::vector<std::string> paths = syncs.paths();
  ASSERT_GE(paths.size(), 4u);
  const std::string temporary = DirectoryName(paths[0]);
  EXPECT_THAT(temporary, HasSubstr(Directory(10) + ".tmp."));
  EXPECT_THAT(paths, ElementsAre(temporary + "/rank_00000.safetensors", temporary + "/vocabulary.txt",
                                 temporary + "/manifest.json", temporary, parent, parent, parent));
}

TEST_F(CheckpointDirectoryTest, KeepsCheckpointsSetAside) {
  Saved({10, 20});
  const RecordedSyncs syncs;
  ASSERT_TRUE(SetAsideLaterCheckpoints(run_.path(), 15, Owner()).ok());
  EXPECT_THAT(syncs.paths(), ElementsAre(run_ / "checkpoints"));
}

TEST_F(CheckpointDirectoryTest, ReadsAPointerFromATextFile) {
  ASSERT_TRUE(MakeDirectories(run_ / "checkpoints").ok());
  SetContents(run_ / "checkpoints/latest", "step_00000020\n");
  EXPECT_EQ(*ReadCheckpointPointer(run_.path(), CheckpointPointer::kLatest), 20);
}

TEST_F(CheckpointDirectoryTest, RefusesPointersOutOfTheFolder) {
  ASSERT_TRUE(MakeDirectories(run_ / "checkpoints").ok());
  ASSERT_EQ(symlink("../../etc", (run_ / "checkpoints/latest").c_str()), 0);
  EXPECT_EQ(ReadCheckpointPointer(run_.path(), CheckpointPointer::kLatest).status().code(),
            absl::StatusCode::kDataLoss);
}

TEST_F(CheckpointDirectoryTest, RetentionKeepsLastMilestonesAndPointers) {
  CheckpointCommitter committer = Committer({.keep_last = 2, .keep_every = 40});
  for (int64_t step = 10; step <= 100; step += 10) SaveStep(committer, step, step == 30);
  EXPECT_THAT(SavedSteps(run_.path()), ElementsAre(30, 40, 80, 90, 100));
}

TEST_F(CheckpointDirectoryTest, RetentionKeepsTheBestOfTheProgress) {
  CheckpointCommitter committer = Committer({.keep_last = 1});
  for (int64_t step = 10; step <= 50; step += 10) SaveStep(committer, step, step == 10, /*best_step=*/20);
  EXPECT_THAT(SavedSteps(run_.path()), ElementsAre(10, 20, 50));
}

TEST_F(CheckpointDirectoryTest, RetentionNeverRemovesLatest) {
  Saved({10, 20, 30, 40, 50});
  ASSERT_TRUE(SetCheckpointPointer(run_.path(), CheckpointPointer::kLatest, 10, "x").ok());
  ASSERT_TRUE(ApplyRetention(run_.path(), {.keep_last = 1}).ok());
  EXPECT_THAT(SavedSteps(run_.path()), ElementsAre(10, 50));
}

TEST_F(CheckpointDirectoryTest, RetentionRemovesNothingWithAnUnreadablePointer) {
  Saved({10, 20, 30});
  SetContents(run_ / "checkpoints/best", "rubbish");
  EXPECT_FALSE(ApplyRetention(run_.path(), {.keep_last = 1}).ok());
  EXPECT_THAT(SavedSteps(run_.path()), ElementsAre(10, 20, 30));
}

TEST_F(CheckpointDirectoryTest, CommitAppliesRetentionAndReportsItsError) {
  CheckpointCommitter committer = Committer({.keep_last = 1});
  SaveStep(committer, 10);
  const auto commit = [&](int64_t step) {
    const auto file = WriteRankFile(committer, step, 0, Slices());
    return committer.Commit({.progress = {.step = step}, .files = {*file}}).value();
  };
  EXPECT_TRUE(commit(20).retention.ok());
  EXPECT_THAT(SavedSteps(run_.path()), ElementsAre(20));
  SetContents(run_ / "checkpoints/best", "rubbish");
  const CommitResult troubled = commit(30);
  EXPECT_EQ(troubled.retention.code(), absl::StatusCode::kDataLoss) << troubled.retention;
  EXPECT_THAT(SavedSteps(run_.path()), ElementsAre(20, 30));
}

// The earlier attempt is at any point of its commit when another one takes the run directory over.
TEST_F(CheckpointDirectoryTest, AnOvertakenAttemptMovesNothingMore) {
  CheckpointCommitter committer = Committer({.keep_last = 1});
  SaveStep(committer, 10);
  const auto file = WriteRankFile(committer, 20, 0, Slices());
  RecordedSyncs syncs;
  syncs.Before("/checkpoints", [this] { Committer(); });  // it is in its place
  const auto committed = committer.Commit({.progress = {.step = 20}, .files = {*file}, .is_best = true});
  EXPECT_EQ(committed.status().code(), absl::StatusCode::kAborted) << committed.status();
  EXPECT_THAT(SavedSteps(run_.path()), ElementsAre(10, 20));
  EXPECT_EQ(*ReadCheckpointPointer(run_.path(), CheckpointPointer::kLatest), 10);
  EXPECT_FALSE(ReadCheckpointPointer(run_.path(), CheckpointPointer::kBest).ok());
}

TEST_F(CheckpointDirectoryTest, AnAttemptOvertakenAfterItsCommitRemovesNothing) {
  CheckpointCommitter committer = Committer({.keep_last = 1});
  SaveStep(committer, 10);
  const auto file = WriteRankFile(committer, 20, 0, Slices());
  RecordedSyncs syncs;
  syncs.Before("/checkpoints", [] {});                    // the checkpoint's name
  syncs.Before("/checkpoints", [this] { Committer(); });  // `latest`
  const auto committed = committer.Commit({.progress = {.step = 20}, .files = {*file}});
  ASSERT_TRUE(committed.ok()) << committed.status();
  EXPECT_EQ(committed->retention.code(), absl::StatusCode::kAborted) << committed->retention;
  EXPECT_THAT(SavedSteps(run_.path()), ElementsAre(10, 20));
}

// A live attempt's directory that changes beneath, say.
TEST_F(CheckpointDirectoryTest, RetentionContinuesAfterAFailedRemoval) {
  const std::string attempt = NewCheckpointAttempt(), mine = NewCheckpointAttempt();
  const std::string checkpoints = run_ / "checkpoints/";
  ASSERT_TRUE(MakeDirectories(checkpoints + "step_00000001.tmp." + attempt).ok());
  ASSERT_TRUE(MakeDirectories(checkpoints + "step_00000001.tmp.removed." + mine + "/in_the_way").ok());
  ASSERT_TRUE(MakeDirectories(checkpoints + "step_00000002.tmp." + attempt).ok());
  CheckpointCommitter committer({.run_directory = run_.path(), .attempt = mine, .parameters = parameters_});
  ASSERT_TRUE(committer.Claim().ok());
  EXPECT_FALSE(RemoveLeftovers(run_.path(), mine).ok());
  EXPECT_THAT(*ListDirectory(checkpoints), ElementsAre("attempt", "step_00000001.tmp." + attempt));
  EXPECT_TRUE(RemoveLeftovers(run_.path(), mine).ok());
  EXPECT_THAT(*ListDirectory(checkpoints), ElementsAre("attempt"));
}

TEST_F(CheckpointDirectoryTest, SetsAPointerOverLeftoversAndLeavesNone) {
  Saved({10});
  SetContents(run_ / "checkpoints/best.x", "left");
  ASSERT_TRUE(SetCheckpointPointer(run_.path(), CheckpointPointer::kBest, 10, "x").ok());
  EXPECT_EQ(*ReadCheckpointPointer(run_.path(), CheckpointPointer::kBest), 10);
  std::filesystem::remove(run_ / "checkpoints/best");
  ASSERT_TRUE(MakeDirectories(run_ / "checkpoints/best/of_somebody").ok());
  ASSERT_TRUE(SetCheckpointPointer(run_.path(), CheckpointPointer::kBest, 10, "x").ok());
  EXPECT_EQ(*ReadCheckpointPointer(run_.path(), CheckpointPointer::kBest), 10);
  EXPECT_THAT(*ListDirectory(run_ / "checkpoints"),
              ElementsAre("attempt", "best", "best.replaced.x", "latest", "step_00000010"));
  EXPECT_TRUE(PathExists(run_ / "checkpoints/best.replaced.x/of_somebody")) << "what is a person's is kept";
}

// As `cp -rL` and `rsync -L` copy a run: `latest` and `best` are directories.
TEST_F(CheckpointDirectoryTest, ReplacesACopiedDirectoryByALink) {
  CheckpointCommitter committer = Committer({.keep_last = 1});
  SaveStep(committer, 10, /*is_best=*/true, 10);
  SaveStep(committer, 20, false, 10);
  for (const char* name : {"latest", "best"}) {
    std::filesystem::remove(run_ / "checkpoints/" + name);
    std::filesystem::copy(Directory(10), run_ / "checkpoints/" + name, std::filesystem::copy_options::recursive);
  }
  EXPECT_FALSE(ReadCheckpointPointer(run_.path(), CheckpointPointer::kLatest).ok());
  ASSERT_TRUE(SetAsideLaterCheckpoints(run_.path(), 20, Owner()).ok());
  EXPECT_EQ(*ReadCheckpointPointer(run_.path(), CheckpointPointer::kLatest), 20);
  EXPECT_EQ(*ReadCheckpointPointer(run_.path(), CheckpointPointer::kBest), 10);
  EXPECT_TRUE(PathExists(run_ / ("checkpoints/latest.replaced." + Owner() + "/manifest.json")));
  EXPECT_TRUE(ApplyRetention(run_.path(), {.keep_last = 1}).ok());
}

// A checkpoint's directory, or its manifest, as something else: damage, as in the place of any other file.
TEST_F(CheckpointDirectoryTest, SkipsSpecialFiles) {
  Saved({10, 20});
  const std::string manifest = Directory(20) + "/manifest.json", kept = run_ / "manifest";
  const std::vector<std::function<void()>> damages = {
      [&] { ASSERT_EQ(symlink(kept.c_str(), manifest.c_str()), 0); },
      [&] { ASSERT_EQ(symlink("nowhere", manifest.c_str()), 0); },
      [&] { ASSERT_EQ(mkfifo(manifest.c_str(), 0600), 0); },
      [&] { std::filesystem::create_directory(manifest); },
      [&] {
        SetContents(manifest, "");
        std::filesystem::resize_file(manifest, uintmax_t{1} << 40);  // sparse, far above the limit
      },
      [&] {
        std::filesystem::remove_all(Directory(20));
        SetContents(Directory(20), "a file");
      },
      [&] {
        std::filesystem::remove(Directory(20));
        ASSERT_EQ(mkfifo(Directory(20).c_str(), 0600), 0);
      },
      [&] {
        std::filesystem::remove(Directory(20));
        ASSERT_EQ(symlink("nowhere", Directory(20).c_str()), 0);
      }};
  std::filesystem::rename(manifest, kept);
  for (size_t i = 0; i < damages.size(); ++i) {
    damages[i]();
    const auto found = FindLatest(run_.path());
    ASSERT_TRUE(found.ok()) << i << ": " << found.status();
    EXPECT_EQ(found->checkpoint.step, 10) << i;
    ASSERT_EQ(found->rejected.size(), 1u) << i;
    EXPECT_THAT(std::string(found->rejected[0].reason.message()), HasSubstr("step_00000020")) << i;
    if (PathExists(manifest) || std::filesystem::is_symlink(manifest)) std::filesystem::remove(manifest);
  }
}

// A run in progress removes and replaces checkpoints while others read them.
TEST_F(CheckpointDirectoryTest, ReadsAnOpenCheckpointAfterItsRemoval) {
  CheckpointCommitter committer = Saved({10});
  auto reader = CheckpointReader::Open(Directory(10));
  auto replaced = OpenCheckpoint(run_.path());
  SaveStep(committer, 10);
  EXPECT_TRUE(replaced->Verify().ok()) << replaced->Verify();
  ASSERT_TRUE(RemoveTree(Directory(10)).ok());
  EXPECT_TRUE(reader->Verify().ok()) << reader->Verify();
  EXPECT_TRUE(absl::IsNotFound(CheckpointReader::Open(Directory(10)).status()));
}

// 64 that are kept open, 32 others, the directory, and the one that is being read.
TEST_F(CheckpointDirectoryTest, ReadsManyFilesWithAtMostAHundredOpen) {
  constexpr int kFiles = 110;
  CheckpointCommitter committer = Committer();
  CommitRequest request{.progress = {.step = 10}};
  for (int rank = 0; rank < kFiles; ++rank) {
    const auto file = WriteRankFile(committer, 10, rank, rank + 1 < kFiles ? std::vector<SliceState>() : Slices());
    request.files.push_back(*file);
  }
  const auto committed = committer.Commit(request);
  const OpenFilesLimit limit(100);
  auto reader = CheckpointReader::Open(committed->directory);
  const absl::Status verified = reader->Verify();
  EXPECT_TRUE(verified.ok()) << verified;
}

TEST_F(CheckpointDirectoryTest, ZeroKeepsAll) {
  CheckpointCommitter committer = Committer({.keep_last = 0, .keep_every = 20});
  for (int64_t step = 10; step <= 30; step += 10) SaveStep(committer, step);
  EXPECT_THAT(SavedSteps(run_.path()), ElementsAre(10, 20, 30));
}

TEST_F(CheckpointDirectoryTest, FindSkipsDamagedCheckpointsWithReasons) {
  Saved({10, 20, 30, 40});
  const std::string file = Directory(40) + "/rank_00000.safetensors";
  const std::string good = Contents(file);
  SetContents(file, good.substr(0, good.size() - 1));
  std::filesystem::remove(Directory(30) + "/manifest.json");
  const auto found = FindLatest(run_.path());
  EXPECT_EQ(found->checkpoint.step, 20);
  ASSERT_EQ(found->rejected.size(), 2u);
  EXPECT_EQ(found->rejected[0].directory, Directory(40));
  EXPECT_THAT(std::string(found->rejected[0].reason.message()), HasSubstr("rank_00000.safetensors"));
  EXPECT_THAT(std::string(found->rejected[1].reason.message()), HasSubstr("manifest.json"));
  // Sizes alone do not show a flipped bit; the load does, and then the search goes on below it.
  SetContents(file, good);
  FlipBit(file, good.size() - 1);
  EXPECT_EQ(FindLatest(run_.path())->checkpoint.step, 40);
  EXPECT_EQ(FindLatest(run_.path(), {.before_step = 20})->checkpoint.step, 10);
}

TEST_F(CheckpointDirectoryTest, FindFailsWhenAllAreDamaged) {
  Saved({10});
  SetContents(Directory(10) + "/manifest.json", "{}");
  const auto found = FindLatest(run_.path());
  EXPECT_EQ(found.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(found.status().message()), HasSubstr(Directory(10)));
}

// Of a process that may open no more files, say: it starts again with a higher limit, and goes on from where it was.
TEST_F(CheckpointDirectoryTest, FindReturnsErrorsThatAreNotDamage) {
  Saved({10, 20});
  absl::Status status;
  {
    const OpenFilesLimit limit(1);  // enough to list a directory
    status = FindLatest(run_.path()).status();
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(Directory(20)), HasSubstr("ulimit -n"), HasSubstr("no older one takes its place")));
  EXPECT_EQ(FindLatest(run_.path())->checkpoint.step, 20);
}

TEST_F(CheckpointDirectoryTest, FindReturnsErrorsOfOtherVersions) {
  Saved({10, 20});
  SetFormat(20, kCheckpointFormat + 1);
  const absl::Status status = FindLatest(run_.path()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(Directory(20)), HasSubstr("use the hadal that wrote it")));
}

TEST_F(CheckpointDirectoryTest, FindsTheNewestDespiteADanglingLatest) {
  CheckpointCommitter committer = Saved({10, 20});
  std::filesystem::remove_all(Directory(20));
  EXPECT_EQ(FindLatest(run_.path())->checkpoint.step, 10);
  SaveStep(committer, 30);
  EXPECT_EQ(*ReadCheckpointPointer(run_.path(), CheckpointPointer::kLatest), 30);
}

TEST_F(CheckpointDirectoryTest, SetsLaterCheckpointsAside) {
  Saved({10, 20, 30, 40});
  const auto moved = SetAsideLaterCheckpoints(run_.path(), 20, Owner());
  const std::string aside = ".abandoned." + Owner();
  EXPECT_THAT(*moved, ElementsAre(Directory(30) + aside, Directory(40) + aside));
  EXPECT_THAT(SavedSteps(run_.path()), ElementsAre(10, 20));
  EXPECT_EQ(*ReadCheckpointPointer(run_.path(), CheckpointPointer::kLatest), 20);
  CheckpointCommitter next = Committer();
  EXPECT_TRUE(PathExists((*moved)[0])) << "what was set aside is a person's to delete";
}

TEST_F(CheckpointDirectoryTest, SettingAsideResetsBest) {
  CheckpointCommitter committer = Committer();
  SaveStep(committer, 10, /*is_best=*/true, 10);
  SaveStep(committer, 20, false, 10);
  SaveStep(committer, 30, /*is_best=*/true, 30);
  SaveStep(committer, 40, /*is_best=*/true, 40);
  ASSERT_TRUE(SetAsideLaterCheckpoints(run_.path(), 40, Owner()).ok());
  EXPECT_EQ(*ReadCheckpointPointer(run_.path(), CheckpointPointer::kBest), 40) << "nothing later: nothing changes";
  ASSERT_TRUE(SetAsideLaterCheckpoints(run_.path(), 20, Owner()).ok());
  EXPECT_EQ(*ReadCheckpointPointer(run_.path(), CheckpointPointer::kBest), 10) << "the best when step 20 was saved";
}

TEST_F(CheckpointDirectoryTest, AdvancesABestThatAKilledCommitLeftBehind) {
  CheckpointCommitter committer = Committer();
  SaveStep(committer, 10, /*is_best=*/true, 10);
  SaveStep(committer, 20, /*is_best=*/false, 20);  // killed before the link
  ASSERT_TRUE(SetAsideLaterCheckpoints(run_.path(), 20, Owner()).ok());
  EXPECT_EQ(*ReadCheckpointPointer(run_.path(), CheckpointPointer::kBest), 20);
}

TEST_F(CheckpointDirectoryTest, StepMinusOneSetsAllAside) {
  CheckpointCommitter committer = Committer();
  SaveStep(committer, 10, /*is_best=*/true, 10);
  SaveStep(committer, 20, false, 10);
  EXPECT_EQ(SetAsideLaterCheckpoints(run_.path(), -1, Owner())->size(), 2u);
  EXPECT_TRUE(ListCheckpoints(run_.path())->empty());
  EXPECT_TRUE(absl::IsNotFound(ReadCheckpointPointer(run_.path(), CheckpointPointer::kBest).status()));
}

TEST_F(CheckpointDirectoryTest, SettingAsideKeepsBestWhenTheFormerBestIsUnknown) {
  CheckpointCommitter committer = Committer();
  SaveStep(committer, 10, /*is_best=*/true, 10);
  SaveStep(committer, 20, false, 10);
  SaveStep(committer, 30, /*is_best=*/true, 30);
  SetFormat(20, kCheckpointFormat + 1);
  EXPECT_FALSE(SetAsideLaterCheckpoints(run_.path(), 20, Owner()).ok());
  EXPECT_EQ(*ReadCheckpointPointer(run_.path(), CheckpointPointer::kBest), 30);
}

TEST_F(CheckpointDirectoryTest, RemovesABestWhoseCheckpointIsGone) {
  CheckpointCommitter committer = Committer();
  SaveStep(committer, 10, false, 5);  // step 5 was best and is not kept
  SaveStep(committer, 20, /*is_best=*/true, 20);
  ASSERT_TRUE(SetAsideLaterCheckpoints(run_.path(), 10, Owner()).ok());
  EXPECT_TRUE(absl::IsNotFound(ReadCheckpointPointer(run_.path(), CheckpointPointer::kBest).status()));
}

}  // namespace
}  // namespace hadal
