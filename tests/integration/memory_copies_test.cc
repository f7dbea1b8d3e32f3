// Copies of the state in the memory of hosts, which here are folders: what a run resumes from after it has lost hosts,
// files or room. The ranks are threads.
#include <algorithm>
#include <atomic>
#include <optional>

#include "gmock/gmock.h"
#include "pipeline/checkpoint/memory_copies.h"
#include "pipeline/checkpoint/run_owner.h"
#include "pipeline/trainer.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"
#include "tests/integration/small_trainer.h"
#include "tests/support/counting_communicator.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/temporary_directory.h"

namespace hadal::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Listener final : public MetricsSink {
 public:
  void OnStep(const StepMetrics& metrics) override {
    if (losses.empty()) first_step = metrics.step;
    losses.push_back(metrics.loss);
  }
  void OnCheckpoint(const CheckpointMetrics& metrics) override {
    (metrics.in_memory ? copies : saves).push_back(metrics.step);
  }
  void OnText(int64_t /*step*/, TextKind kind, std::string_view text) override {
    if (kind == TextKind::kWarning) warnings.emplace_back(text);
  }
  int64_t first_step = 0;
  std::vector<double> losses;
  std::vector<int64_t> copies, saves;
  std::vector<std::string> warnings;
};

// Ends all ranks as soon as an attempt has claimed the run directory.
class EndsAtClaim final : public CountingCommunicator {
 public:
  EndsAtClaim(Communicator& of, std::string run)
      : CountingCommunicator(of, 0, 0, sent_), run_(std::move(run)), before_(Owner()) {}
  absl::StatusOr<CommRequest> Send(const void* data, int64_t bytes, int peer, int tag) override {
    if (rank() == 0 && Owner() != before_) Abort(1);
    return CountingCommunicator::Send(data, bytes, peer, tag);
  }

 private:
  std::string Owner() const { return ReadOwner(run_).value_or(std::nullopt).value_or(RunOwner()).attempt; }
  std::atomic<int64_t> sent_ = 0;
  const std::string run_, before_;
};

using Hosts = std::vector<std::string>;  // [ranks]

class MemoryCopies : public ::testing::Test {
 protected:
  MemoryCopies() {
    const RunSpec spec = SmallRun(ResidualMethod::kDeepNorm);
    options_.model = spec.model;
    options_.batch = spec.batch;
    options_.batch.micro_batches = options_.batch.sum_groups = 4;
    options_.run_directory = Root() + "/run";
    options_.stop.steps = 100'000;
    options_.checkpoint = {.every_minutes = 0, .save_at_end = false, .memory_every_steps = 20};
  }

  std::string Root() const { return directory_ / "root"; }
  // Trains with two replicas if there are more than two ranks, until `ends`, which rank 0 calls before each step, is
  // true. Then all ranks end at once, as if they were killed.
  Listener Train(const Hosts& hosts, const std::function<bool(const Listener&, int64_t step)>& ends) {
    Listener listener;
    InProcessWorld world(static_cast<int>(hosts.size()));
    const absl::Status status = world.Run([&](Communicator& of_rank) {
      EndsAtClaim ends_at_claim(of_rank, options_.run_directory);
      Communicator& communicator = ends_at_claim_ ? ends_at_claim : of_rank;
      TrainOptions options = options_;
      options.pipeline.replicas = hosts.size() > 2 ? 2 : 1;
      options.checkpoint.memory_folder = Root() + "/" + hosts[communicator.rank()];
      std::filesystem::create_directories(options.checkpoint.memory_folder);
      TrainingSurroundings surroundings{
          .communicator = communicator, .stream = Stream::Cpu(1), .train = corpus_, .sink = listener, .hosts = hosts};
      surroundings.before_step = [&](int64_t step) {
        if (communicator.rank() == 0 && ends(listener, step)) communicator.Abort(1);
      };
      return WithTrainer(options, surroundings, [](Trainer& trainer) -> absl::Status {
        HADAL_RETURN_IF_ERROR(trainer.ResumeLatest().status());
        return trainer.Run().status();
      });
    });
    EXPECT_EQ(status.ok(), options_.stop.steps < 100'000) << status;
    return listener;
  }
  // Trains until two copies are complete, and keeps what lies on the hosts for Resume.
  void TrainToTwoCopies() {
    killed_ = Train(kHosts, [](const Listener& listener, int64_t /*step*/) { return listener.copies.size() >= 2; });
    ASSERT_GE(killed_.copies.size(), 2);
    std::filesystem::copy(Root(), directory_ / "kept", std::filesystem::copy_options::recursive);
  }
  void PutBack() {
    std::filesystem::remove_all(Root());
    std::filesystem::copy(directory_ / "kept", Root(), std::filesystem::copy_options::recursive);
  }
  // Three steps more.
  Listener Resume(const Hosts& hosts) {
    return Train(hosts, [](const Listener& listener, int64_t /*step*/) { return listener.losses.size() >= 3; });
  }
  // As of an unbroken run.
  void ExpectLosses(const Listener& resumed, int64_t after_step) {
    EXPECT_EQ(resumed.first_step, after_step + 1);
    for (size_t i = 0; i < resumed.losses.size(); ++i) {
      EXPECT_EQ(resumed.losses[i], unbroken_.losses.at(after_step + i)) << "step " << after_step + i + 1;
    }
  }
  std::vector<std::string> FilesNamed(const std::string& step, const std::string& name) const {
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(Root())) {
      const std::string path = entry.path();
      if (path.ends_with(name) && path.find(step) != std::string::npos) paths.push_back(path);
    }
    return paths;
  }
  void DamageAt(int64_t step, const std::string& name, size_t copies) {
    const std::vector<std::string> paths = FilesNamed("/" + CheckpointName(step) + "/", name);
    ASSERT_EQ(paths.size(), 2) << "its own host and the next one have it";
    for (size_t i = 0; i < copies; ++i) FlipBit(paths[i], std::filesystem::file_size(paths[i]) - 5);
  }

  const Hosts kHosts = {"a", "a", "b", "c"};
  TemporaryDirectory directory_;
  TrainOptions options_;
  Corpus corpus_ = SmallCorpus();
  Listener killed_, unbroken_;
  bool ends_at_claim_ = false;
};

TEST_F(MemoryCopies, ARunResumesWithTheSameBitsOnTheHostsThatAreLeft) {
  TrainToTwoCopies();
  const int64_t newest = killed_.copies.back();
  options_.checkpoint.memory_every_steps = 0;
  options_.run_directory = directory_ / "unbroken";
  unbroken_ = Train({"a", "a"}, [&](const Listener&, int64_t step) { return step >= newest + 3; });
  options_.run_directory = Root() + "/run";
  options_.checkpoint.memory_every_steps = 20;
  for (const Hosts& left : {kHosts, {"a", "b"}, {"c", "a"}, {"b", "c"}, {"a", "d", "c", "d"}}) {
    PutBack();
    ExpectLosses(Resume(left), newest);
  }
  for (const std::string& path : FilesNamed("/d/", ".safetensors")) {
    EXPECT_EQ(path.find(CheckpointName(newest)), std::string::npos) << "what was fetched is freed again";
  }
  PutBack();
  EXPECT_EQ(Resume({"c", "c"}).first_step, 1) << "a's files are on a and b only";
  EXPECT_EQ(Resume(kHosts).first_step, 1) << "copies of a history that another start has left";
}

TEST_F(MemoryCopies, AStartThatEndsBetweenItsTwoClaimsLosesTheCopiesOnlyOfHostsThatItLacked) {
  TrainToTwoCopies();
  ends_at_claim_ = true;
  EXPECT_THAT(Resume(kHosts).losses, IsEmpty());  // each host has the whole state then
  EXPECT_THAT(Resume({"a", "b"}).losses, IsEmpty());
  ends_at_claim_ = false;
  std::filesystem::copy(Root(), directory_ / "ended", std::filesystem::copy_options::recursive);
  EXPECT_EQ(Resume({"b", "b"}).first_step, killed_.copies.back() + 1);
  std::filesystem::remove_all(Root());
  std::filesystem::rename(directory_ / "ended", Root());
  EXPECT_EQ(Resume({"c", "c"}).first_step, 1) << "the last start was without it";
}

TEST_F(MemoryCopies, ADamagedFileIsTakenFromTheOtherHostOrTheOlderCopyCounts) {
  TrainToTwoCopies();
  const std::vector<int64_t> steps(killed_.copies.end() - 2, killed_.copies.end());
  // Where a third copy had begun, the older one has made room for it on some hosts.
  int64_t older = steps[0];
  for (int rank = 0; rank < 4; ++rank) {
    if (FilesNamed(CheckpointName(steps[0]), RankFileName(rank)).empty()) older = 0;
  }
  DamageAt(steps[1], "rank_00002.safetensors", 1);
  EXPECT_EQ(Resume(kHosts).first_step, steps[1] + 1);
  PutBack();
  DamageAt(steps[1], "rank_00002.safetensors", 2);
  EXPECT_EQ(Resume(kHosts).first_step, older + 1);
}

TEST_F(MemoryCopies, ACheckpointThatIsNewerIsPreferred) {
  options_.checkpoint.every_steps = 30;
  killed_ = Train(kHosts, [](const Listener& listener, int64_t /*step*/) {
    return !listener.copies.empty() && !listener.saves.empty() && listener.saves.back() > listener.copies.back();
  });
  EXPECT_EQ(Resume(kHosts).first_step, killed_.saves.back() + 1);
}

TEST_F(MemoryCopies, WithoutRoomTheOldCopyStaysAndTheRunWarnsOnce) {
  std::optional<FileSizeLimit> full;
  int64_t since = 0;
  killed_ = Train(kHosts, [&](const Listener& listener, int64_t step) {
    if (!full && !listener.copies.empty()) full.emplace(400), since = step;
    return full && step >= since + 40;
  });
  full.reset();
  EXPECT_THAT(killed_.warnings, ElementsAre(HasSubstr("NO COPY IN MEMORY")));
  EXPECT_EQ(Resume(kHosts).first_step, killed_.copies.back() + 1);
}

TEST_F(MemoryCopies, OlderCopiesButTheNewestGiveRoomAlsoIfAnotherRankHasBegun) {
  std::filesystem::create_directories(options_.checkpoint.memory_folder = Root());
  const absl::Status status = InProcessWorld(1).Run([&](Communicator& communicator) {
    hadal::MemoryCopies copies(options_, {"a"}, communicator);
    HADAL_RETURN_IF_ERROR(copies.Claim("1", 0));
    for (const int64_t step : {100, 110, 120}) std::filesystem::create_directories(copies.Directory(step));
    EXPECT_THAT(copies.GivingRoom(120), ElementsAre(copies.Directory(100)));
    HADAL_RETURN_IF_ERROR(copies.Claim("2", 110));
    EXPECT_TRUE(PathExists(copies.Directory(110)));
    EXPECT_FALSE(PathExists(copies.Directory(120))) << "of an abandoned future";
    options_.run_directory += "_other";
    EXPECT_NE(hadal::MemoryCopies(options_, {"a"}, communicator).Directory(100), copies.Directory(100));
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

// As where RemoveIPC has cleared the folder of a user who logs out.
TEST_F(MemoryCopies, ACopyCountsAlsoIfTheFileOfItsAttemptWasRemoved) {
  bool removed = false;
  killed_ = Train(kHosts, [&](const Listener& listener, int64_t /*step*/) {
    if (!removed && !listener.copies.empty()) {
      for (const std::string& path : FilesNamed("/hadal-", "/attempt")) std::filesystem::remove(path);
      removed = true;
    }
    return listener.copies.size() >= 4;
  });
  EXPECT_THAT(FilesNamed(CheckpointName(killed_.copies[0]), "manifest.json"), IsEmpty());
  EXPECT_EQ(Resume(kHosts).first_step, killed_.copies.back() + 1);
}

TEST_F(MemoryCopies, SomeoneElsesDirectoryIsNeitherReadNorWritten) {
  TrainToTwoCopies();
  const std::string place = std::filesystem::directory_iterator(Root() + "/b")->path();
  std::filesystem::rename(place, Root() + "/target");
  std::filesystem::create_directory_symlink(Root() + "/target", place);
  const Listener resumed = Train(kHosts, [](const Listener&, int64_t step) { return step >= 45; });
  EXPECT_EQ(resumed.first_step, 1);
  EXPECT_THAT(resumed.copies, IsEmpty());
  std::filesystem::remove(place);
  std::filesystem::create_directory(place);
  std::filesystem::permissions(place, std::filesystem::perms::all);
  EXPECT_THAT(Train(kHosts, [](const Listener&, int64_t step) { return step >= 45; }).copies, IsEmpty());
  EXPECT_TRUE(std::filesystem::is_empty(place));
}

TEST_F(MemoryCopies, ARunThatEndsRemovesThemIfItsLastStepIsSaved) {
  options_.stop.steps = 25;
  for (const bool saves : {false, true}) {
    options_.checkpoint.save_at_end = saves;
    const Listener run = Train(kHosts, [](const Listener&, int64_t /*step*/) { return false; });
    EXPECT_EQ(run.copies.empty(), saves) << "the second run resumes from the first one's copies";
    for (const std::string& host : kHosts) EXPECT_EQ(std::filesystem::is_empty(Root() + "/" + host), saves) << host;
  }
}

}  // namespace
}  // namespace hadal::testing
