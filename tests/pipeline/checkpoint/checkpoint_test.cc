// Whole checkpoints: written by one layout and read by another, and damaged in every way a disk or a person can.
#include "pipeline/checkpoint/checkpoint_directory.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include "pipeline/checkpoint/checkpoint_reader.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/small_checkpoint.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string Text(const absl::Status& status) { return std::string(status.message()); }

// A run directory with one checkpoint of step 5.
class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() : state_(SmallParameters(), 1), committer_(SmallCommitter(run_.path())) {
    const auto saved = Save(committer_, state_);
    directory_ = saved->directory;
  }

  // What Open, or else Verify, or else reading all slices says of the directory.
  absl::Status Check() {
    auto reader = CheckpointReader::Open(directory_);
    if (!reader.ok()) return reader.status();
    const absl::Status verified = reader->Verify();
    SmallState loaded(SmallParameters(), 99);
    const absl::Status read = reader->ReadSlices(loaded.Slices());
    EXPECT_TRUE(!verified.ok() || !read.ok() || loaded == state_) << "a changed checkpoint was accepted";
    return verified;
  }

  TemporaryDirectory run_;
  SmallState state_;
  CheckpointCommitter committer_;
  std::string directory_;
};

TEST_F(CheckpointTest, AnyLayoutLoadsAnyOther) {
  EXPECT_EQ(directory_, run_ / "checkpoints/step_00000005");
  for (const int ranks : {1, 2, 5}) {
    SmallState loaded(SmallParameters(), 99);
    for (int rank = 0; rank < ranks; ++rank) {
      auto reader = CheckpointReader::Open(directory_);
      ASSERT_TRUE(reader->ReadSlices(loaded.SlicesOfRank(rank, ranks)).ok());
    }
    EXPECT_TRUE(loaded == state_) << ranks;
  }
  EXPECT_TRUE(Check().ok()) << Check();
}

TEST_F(CheckpointTest, ReadsOnlyWhatIsWanted) {
  SmallState loaded(SmallParameters(), 99);
  loaded.Clear();
  const std::vector<SliceState> all = loaded.Slices();
  auto reader = CheckpointReader::Open(directory_);
  ASSERT_TRUE(reader->ReadSlices({{SliceState{.parameter = 1, .slice = 0, .weight = all[2].weight}}}).ok());
  EXPECT_EQ(loaded.values(1, StateKind::kWeight), state_.values(1, StateKind::kWeight));
  EXPECT_EQ(loaded.values(1, StateKind::kFirstMoment)[0], -77);
  EXPECT_EQ(loaded.values(0, StateKind::kWeight)[0], -77);
}

TEST_F(CheckpointTest, TheManifestKeepsEverything) {
  const auto reader = CheckpointReader::Open(directory_);
  const CheckpointManifest& manifest = reader->manifest();
  EXPECT_EQ(manifest.progress.step, 5);
  EXPECT_EQ(manifest.progress.update, 4);
  EXPECT_EQ(manifest.progress.seed, 0xffffffffffffffff);
  EXPECT_EQ(manifest.progress.epochs_done, 1.25);
  EXPECT_EQ(manifest.progress.best_step(), -1);
  EXPECT_EQ(manifest.plan_hash, 0xfeedfacecafebeef);
  EXPECT_THAT(manifest.config_text, HasSubstr("ä \\\"quoted"));
  EXPECT_EQ(manifest.parameters, SmallParameters());
  EXPECT_EQ(*CheckpointReader::Open(directory_)->ReadAttachment("vocabulary.model"), std::string("bytes\0\n", 7));
  EXPECT_EQ(CheckpointReader::Open(directory_)->ReadAttachment("manifest.json").status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(CheckpointTest, OtherModelsAreNamed) {
  auto other = SmallParameters();
  EXPECT_TRUE(CompareParameters(SmallParameters(), other).ok());
  other[2].rows = 7;
  EXPECT_THAT(Text(CompareParameters(SmallParameters(), other)), HasSubstr("fc1.bias [6], the model's is"));
  other = SmallParameters();
  other.pop_back();
  EXPECT_THAT(Text(CompareParameters(SmallParameters(), other)), HasSubstr("5 parameters, the model 4"));
}

TEST_F(CheckpointTest, AMissingFileIsNamed) {
  for (const char* name : {"rank_00001.safetensors", "vocabulary.model", "manifest.json"}) {
    const std::string path = JoinPath(directory_, name);
    std::filesystem::rename(path, run_ / "kept");
    EXPECT_THAT(Text(Check()), HasSubstr(name));
    std::filesystem::rename(run_ / "kept", path);
  }
  EXPECT_TRUE(Check().ok());
}

TEST_F(CheckpointTest, ACutFileIsRefusedAtOpen) {
  for (const char* name : {"rank_00000.safetensors", "rank_00001.safetensors", "vocabulary.model"}) {
    const std::string path = JoinPath(directory_, name);
    const std::string whole = Contents(path);
    for (const size_t bytes : {size_t{0}, size_t{4}, size_t{8}, size_t{100}, whole.size() / 2, whole.size() - 1}) {
      if (bytes >= whole.size()) continue;
      SetContents(path, whole.substr(0, bytes));
      EXPECT_THAT(Text(CheckpointReader::Open(directory_).status()), HasSubstr("cut short")) << name << " " << bytes;
    }
    SetContents(path, whole + "x");
    EXPECT_EQ(CheckpointReader::Open(directory_).status().code(), absl::StatusCode::kDataLoss);
    SetContents(path, whole);
  }
}

TEST_F(CheckpointTest, AManifestCutAnywhereIsRefused) {
  const std::string path = JoinPath(directory_, "manifest.json");
  const std::string whole = Contents(path);
  for (size_t bytes = 0; bytes < whole.size(); bytes += 7) {
    EXPECT_EQ(CheckpointManifest::Parse(whole.substr(0, bytes)).status().code(), absl::StatusCode::kDataLoss) << bytes;
  }
  EXPECT_EQ(CheckpointManifest::Parse(whole.substr(0, whole.size() - 1)).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(CheckpointManifest::Parse(whole + "\n").status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(CheckpointTest, EveryFlippedBitOfTheManifestIsSeen) {
  const std::string whole = Contents(JoinPath(directory_, "manifest.json"));
  for (size_t byte = 0; byte < whole.size(); ++byte) {
    std::string damaged = whole;
    damaged[byte] = static_cast<char>(damaged[byte] ^ (1 << byte % 8));
    EXPECT_FALSE(CheckpointManifest::Parse(damaged).ok()) << "byte " << byte;
  }
}

TEST_F(CheckpointTest, FlippedBitsInEachRegionOfAFileAreSeenByVerifyAndByTheRankThatReadsThem) {
  const std::string path = JoinPath(directory_, "rank_00001.safetensors");
  const std::string whole = Contents(path);
  const auto file = SafetensorsReader::Open(path);
  const size_t data = static_cast<size_t>(file->header_bytes());
  std::vector<size_t> bytes = {0, 7, 8, data / 2, data - 1, data, whole.size() - 1};
  size_t at = data;
  for (const SafetensorsTensor& tensor : file->tensors()) {
    bytes.push_back(at + static_cast<size_t>(tensor.bytes()) / 2);
    at += static_cast<size_t>(tensor.bytes());
  }
  for (const size_t byte : bytes) {
    FlipBit(path, byte, static_cast<int>(byte % 8));
    auto reader = CheckpointReader::Open(directory_);
    const absl::Status verified = reader->Verify();
    EXPECT_EQ(verified.code(), absl::StatusCode::kDataLoss) << "byte " << byte;
    if (byte >= data) {
      EXPECT_THAT(Text(verified), Not(HasSubstr("the whole"))) << "it says which slice";
    }
    SmallState loaded(SmallParameters(), 99);
    auto again = CheckpointReader::Open(directory_);
    EXPECT_THAT(Text(again->ReadSlices(loaded.SlicesOfRank(1, 3))), HasSubstr("rank_00001")) << "byte " << byte;
    // A rank that wants nothing of the damaged file is not held up by it.
    EXPECT_TRUE(again->ReadSlices(loaded.SlicesOfRank(0, 3)).ok());
    FlipBit(path, byte, static_cast<int>(byte % 8));
  }
}

TEST_F(CheckpointTest, VerifyReadsAttachmentsToo) {
  FlipBit(JoinPath(directory_, "vocabulary.model"), 3, 1);
  EXPECT_THAT(Text(Check()), HasSubstr("vocabulary.model is damaged"));
}

TEST_F(CheckpointTest, MixedStepsAreNamed) {
  SmallState later(SmallParameters(), 2);
  ASSERT_TRUE(Save(committer_, later, {.step = 6}).ok());
  std::filesystem::copy_file(run_ / "checkpoints/step_00000006/rank_00002.safetensors",
                             JoinPath(directory_, "rank_00002.safetensors"),
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(Text(Check()), HasSubstr("it is of step 6, the manifest of step 5"));
}

TEST_F(CheckpointTest, AnotherModelsFileOfTheSameSizeIsRefused) {
  std::filesystem::copy_file(JoinPath(directory_, "rank_00002.safetensors"),
                             JoinPath(directory_, "rank_00001.safetensors"),
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_FALSE(Check().ok());
}

TEST_F(CheckpointTest, ARenamedDirectoryIsRefused) {
  std::filesystem::rename(directory_, run_ / "checkpoints/step_00000009");
  EXPECT_THAT(Text(CheckpointReader::Open(run_ / "checkpoints/step_00000009").status()),
              HasSubstr("named after step 9"));
}

TEST_F(CheckpointTest, LinksInsideAreNotFollowed) {
  const std::string path = JoinPath(directory_, "rank_00001.safetensors");
  std::filesystem::rename(path, run_ / "elsewhere");
  ASSERT_EQ(symlink((run_ / "elsewhere").c_str(), path.c_str()), 0);
  const absl::Status link = CheckpointReader::Open(directory_).status();
  EXPECT_TRUE(IsDamage(link)) << link;
  EXPECT_THAT(Text(link), HasSubstr("a symbolic link is not followed"));
}

TEST_F(CheckpointTest, MomentsOfAWeightsOnlyCheckpointAreAnErrorThatSaysWhatToDo) {
  std::vector<SliceState> weights = state_.Slices();
  for (SliceState& slice : weights) slice.first_moment = slice.second_moment = {};
  const auto file = WriteRankFile(committer_, 7, 0, weights);
  CheckpointManifest manifest = CheckpointReader::Open(directory_)->manifest();
  manifest.progress.step = 7;
  manifest.has_moments = false;
  manifest.files = {*file};
  manifest.attachments.clear();
  const absl::Status completed = CompleteCheckpointDirectory(committer_.TemporaryDirectory(7), manifest, {});
  ASSERT_TRUE(completed.ok()) << completed;
  const std::string saved = run_ / "checkpoints/step_00000007";
  std::filesystem::rename(committer_.TemporaryDirectory(7), saved);
  auto reader = CheckpointReader::Open(saved);
  int64_t bytes = 0, verified = 0;
  for (const WrittenFile& file : reader->manifest().files) bytes += file.bytes;
  EXPECT_TRUE(reader->Verify([&](int64_t more) { verified += more; }).ok());
  EXPECT_GT(verified, bytes) << "tensors one by one, and the whole files";
  EXPECT_LT(verified, 2 * bytes);
  SmallState loaded(SmallParameters(), 99);
  EXPECT_THAT(Text(reader->ReadSlices(loaded.Slices())), HasSubstr("--init-from"));
  EXPECT_EQ(FindLatest(run_.path(), {.need_moments = true})->checkpoint.step, 5);
  EXPECT_EQ(FindLatest(run_.path())->checkpoint.step, 7);
}

// ---- Writing ----

TEST_F(CheckpointTest, FilesThatDoNotCoverTheModelAreNeverCommitted) {
  const auto commit = [&](int64_t step, std::vector<int> ranks_of_three) {
    CommitRequest request = {.progress = {.step = step, .update = step}};
    for (size_t i = 0; i < ranks_of_three.size(); ++i) {
      const auto file = WriteRankFile(committer_, step, static_cast<int>(i), state_.SlicesOfRank(ranks_of_three[i], 3));
      request.files.push_back(*file);
    }
    return committer_.Commit(request).status();
  };
  EXPECT_THAT(Text(commit(6, {0, 1})), HasSubstr("weight/encoder.layers.0.fc1.weight/0 is in no file"));
  EXPECT_THAT(Text(commit(7, {0, 1, 2, 1})), HasSubstr("listed twice"));
  EXPECT_TRUE(commit(8, {2, 0, 1}).ok());
  EXPECT_FALSE(PathExists(run_ / "checkpoints/step_00000006"));
  EXPECT_FALSE(PathExists(committer_.TemporaryDirectory(6)));
  EXPECT_EQ(*ReadCheckpointPointer(run_.path(), CheckpointPointer::kLatest), 8);
}

// What every reader goes by is the manifest; a file whose own header says otherwise is not read.
TEST_F(CheckpointTest, AFileThatHoldsOtherTensorsThanItsRankReportedIsRefused) {
  const auto first = WriteRankFile(committer_, 6, 0, state_.Slices());
  WrittenFile swapped = *first;
  std::swap(swapped.slices[2], swapped.slices[3]);
  const auto committed = committer_.Commit({.progress = {.step = 6}, .files = {swapped}});
  EXPECT_THAT(Text(CheckpointReader::Open(committed->directory)->Verify()), HasSubstr("its header something else"));

  const auto all = WriteRankFile(committer_, 7, 0, state_.Slices());
  const std::vector<SliceState> last = {state_.Slices().back()};
  const auto again = WriteRankFile(committer_, 7, 1, last);
  ASSERT_TRUE(all.ok() && again.ok());
  WrittenFile shorter = *all;
  shorter.slices.pop_back();
  const auto more = committer_.Commit({.progress = {.step = 7}, .files = {shorter, *again}});
  EXPECT_THAT(Text(CheckpointReader::Open(more->directory)->Verify()),
              HasSubstr("tensors that the manifest does not list"));
}

TEST_F(CheckpointTest, ARankFileSaysWhatItIsOf) {
  const auto file = SafetensorsReader::Open(JoinPath(directory_, "rank_00001.safetensors"));
  EXPECT_EQ(file->metadata().at("plan_hash"), "feedfacecafebeef");
  EXPECT_EQ(file->metadata().at("rank"), "1");
  EXPECT_EQ(file->metadata().at("step"), "5");
}

TEST_F(CheckpointTest, ARankFileThatIsNotThereIsNeverCommitted) {
  const auto file = WriteRankFile(committer_, 6, 0, state_.Slices());
  std::filesystem::remove(JoinPath(committer_.TemporaryDirectory(6), file->name));
  const auto result = committer_.Commit({.progress = {.step = 6}, .files = {*file}});
  EXPECT_THAT(Text(result.status()), HasSubstr("rank_00000.safetensors is missing"));
  EXPECT_THAT(Text(result.status()), HasSubstr("all ranks share"));
}

TEST_F(CheckpointTest, ASupersededAttemptCannotCommit) {
  CheckpointCommitter later = SmallCommitter(run_.path());
  EXPECT_EQ(Save(committer_, state_, {.step = 6}).status().code(), absl::StatusCode::kAborted);
  EXPECT_FALSE(PathExists(run_ / "checkpoints/step_00000006"));
  EXPECT_TRUE(Save(later, state_, {.step = 6}).ok());
}

TEST_F(CheckpointTest, ACheckpointOfTheSameStepIsReplaced) {
  SmallState other(SmallParameters(), 2);
  ASSERT_TRUE(Save(committer_, other, {.step = 5, .ranks = 1}).ok());
  auto reader = CheckpointReader::Open(directory_);
  SmallState loaded(SmallParameters(), 99);
  ASSERT_TRUE(reader->Verify().ok());
  ASSERT_TRUE(reader->ReadSlices(loaded.Slices()).ok());
  EXPECT_TRUE(loaded == other);
  EXPECT_THAT(*ListDirectory(run_ / "checkpoints"), testing::ElementsAre("attempt", "latest", "step_00000005"));
}

TEST_F(CheckpointTest, AFullDiskLeavesTheLastCheckpointAndNoRubbish) {
  {
    const FileSizeLimit limit(1'000'000);
    const auto saved = Save(committer_, state_, {.step = 6});
    EXPECT_EQ(saved.status().code(), absl::StatusCode::kResourceExhausted) << saved.status();
    EXPECT_TRUE(committer_.Abandon(6).ok());
  }
  EXPECT_FALSE(PathExists(committer_.TemporaryDirectory(6)));
  EXPECT_EQ(FindLatest(run_.path())->checkpoint.step, 5);
  EXPECT_TRUE(Check().ok());
  EXPECT_TRUE(Save(committer_, state_, {.step = 7}).ok()) << "saving works again when there is room";
}

TEST_F(CheckpointTest, AFullDiskAtTheManifestIsReportedToo) {
  CommitRequest request = {.progress = {.step = 6}, .config_text = std::string(1'000'000, 'x')};
  const auto file = WriteRankFile(committer_, 6, 0, state_.Slices());
  request.files = {*file};
  const FileSizeLimit limit(500'000);
  EXPECT_EQ(committer_.Commit(request).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(PathExists(committer_.TemporaryDirectory(6)));
  EXPECT_EQ(*ReadCheckpointPointer(run_.path(), CheckpointPointer::kLatest), 5);
}

TEST_F(CheckpointTest, APlaceThatCannotBeWrittenIsReported) {
  // /proc refuses new directories to everybody, root included.
  CheckpointCommitter committer({.run_directory = "/proc/hadal", .attempt = "a", .parameters = SmallParameters()});
  const absl::Status claim = committer.Claim();
  EXPECT_FALSE(claim.ok());
  EXPECT_THAT(Text(claim), HasSubstr("/proc/hadal"));
  EXPECT_FALSE(WriteRankFile(committer, 1, 0, state_.Slices()).ok());
}

TEST_F(CheckpointTest, AVanishedRunDirectoryIsReportedAtCommit) {
  std::filesystem::remove_all(run_ / "checkpoints");
  const auto saved = Save(committer_, state_, {.step = 6});
  EXPECT_EQ(saved.status().code(), absl::StatusCode::kAborted) << saved.status();
}

TEST_F(CheckpointTest, AnUnclearedAttemptsFilesAreRemovedByTheNextClaim) {
  ASSERT_TRUE(WriteRankFile(committer_, 6, 0, state_.Slices()).ok());  // and then it is killed
  const std::string leftover = committer_.TemporaryDirectory(6);
  EXPECT_EQ(FindLatest(run_.path())->checkpoint.step, 5) << "half-written directories are not looked at";
  CheckpointCommitter next = SmallCommitter(run_.path());
  EXPECT_FALSE(PathExists(leftover));
  EXPECT_TRUE(Check().ok());
}

TEST_F(CheckpointTest, ACheckpointCaughtWhileBeingReplacedComesBack) {
  const std::string aside = directory_ + ".replaced." + NewCheckpointAttempt();
  std::filesystem::rename(directory_, aside);
  CheckpointCommitter next = SmallCommitter(run_.path());
  EXPECT_TRUE(Check().ok()) << Check();
  std::filesystem::create_directory(aside);
  CheckpointCommitter another = SmallCommitter(run_.path());
  EXPECT_FALSE(PathExists(aside));
  EXPECT_TRUE(Check().ok());
}

}  // namespace
}  // namespace hadal
