// Torture: a supervised run whose ranks are killed with SIGKILL at random moments, again and again, and which must end
// with the very weights of a run that nobody disturbed.
//
// A round: wait a random time from the job's start, or, every second round, until a checkpoint is being written and a
// random time on; stop all ranks (SIGSTOP) to look at the files as they are at that moment; kill one at random; let the
// others go on. The supervisor starts the job again. Checked in every round: the run resumed from no step later than
// done and lost no more than one interval of checkpoints and the steps of a save under way. At the end it is asked to
// stop, and compared bit for bit with an undisturbed one-rank run of as many steps; metrics.jsonl must hold every step
// exactly once, and no checkpoint may ever have been refused.
//
//   torture HADAL ROUNDS RANKS [SEED]      0: all held
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/torture/supervised_run.h"

namespace hadal::torture {
namespace {

constexpr int kInterval = 5;  // steps between checkpoints
// A save goes on beside training and is finished before the next begins: what a kill costs is one interval, and the
// steps since the beginning of a save under way.
constexpr int kMostLost = 2 * kInterval;

struct Counts {
  int rounds = 0;
  int during_save = 0;
  int before_first_step = 0;  // while starting or loading
  int64_t lost_steps = 0;
  int64_t most_lost = 0;
  int too_much_lost = 0;
  int bad_resumes = 0;  // from a step that was never reached
};

class Torture {
 public:
  Torture(std::string hadal, int ranks, uint32_t seed, std::string work)
      : hadal_(std::move(hadal)), ranks_(ranks), random_(seed), work_(std::move(work)), run_(work_ + "/tortured") {}

  // Tortures the run for so many rounds and stops it; its last step, or -1.
  int64_t Run(int rounds) {
    SupervisedRun job(hadal_, Launcher(), TrainWords(work_, kInterval, 1000000000), run_, work_ + "/log");
    std::vector<pid_t> before;
    for (int round = 0; round < rounds; ++round) {
      before = NewRanks(job, before);
      if (static_cast<int>(before.size()) != ranks_) return -1;
      WaitForMoment(round % 2 == 1);
      KillOne(before);
    }
    NewRanks(job, before);
    Sleep(300);
    const int code = job.Stop();
    if (code != 85) std::printf("the run ended with exit code %d instead of 85\n", code);
    const RunFiles files = Inspect(run_);
    Account(files);
    if (!files.steps_in_order) std::printf("metrics.jsonl has a gap or a doubled step\n");
    return code == 85 && files.steps_in_order ? files.checkpoint : -1;
  }

  // Whether an undisturbed run of `steps` steps ends with the same bits.
  bool SameAsUndisturbed(int64_t steps) {
    const std::string words = absl::StrJoin(TrainWords(work_, 0, steps), " ");
    const std::string directory = work_ + "/undisturbed";
    if (Shell(absl::StrCat(hadal_, " ", words, " --run-dir ", directory, " > ", work_, "/undisturbed.log 2>&1")) != 0) {
      return false;
    }
    return SameCheckpoint(hadal_, run_, directory, steps);
  }

  bool Report() const {
    const int refused = Shell(absl::StrCat("grep -q REFUSED ", work_, "/log")) == 0 ? 1 : 0;
    std::printf(
        "rounds %d, ranks %d; kills during a save %d, before the first step %d; lost steps %lld in all, at most %lld a "
        "round (bound %d); corrupted loads %d\n",
        counts_.rounds, ranks_, counts_.during_save, counts_.before_first_step,
        static_cast<long long>(counts_.lost_steps), static_cast<long long>(counts_.most_lost), kMostLost, refused);
    return refused == 0 && counts_.too_much_lost == 0 && counts_.bad_resumes == 0 && counts_.during_save > 0;
  }

 private:
  std::string Launcher() const {
    return ranks_ == 1 ? "" : absl::StrCat("mpirun --bind-to none --oversubscribe -n ", ranks_);
  }
  int Uniform(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  static void Sleep(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

  // The ranks of the next start: as many as there should be, none of them killed before.
  std::vector<pid_t> NewRanks(const SupervisedRun& job, const std::vector<pid_t>& before) const {
    for (int tenths = 0; tenths < 60000; ++tenths) {
      std::vector<pid_t> ranks = job.Ranks();
      const bool fresh = std::none_of(ranks.begin(), ranks.end(), [&](pid_t rank) {
        return std::find(before.begin(), before.end(), rank) != before.end();
      });
      if (fresh && static_cast<int>(ranks.size()) == ranks_) return ranks;
      Sleep(1);
    }
    std::printf("the supervisor did not start the job again within a minute\n");
    return {};
  }

  void WaitForMoment(bool save) {
    Sleep(Uniform(0, ranks_ == 1 ? 250 : 1200));
    if (!save) return;
    // A save follows every few steps; none comes while the job is still starting, which takes long on a busy machine.
    for (int i = 0; i < 100000 && !IsSaving(run_); ++i) std::this_thread::sleep_for(std::chrono::microseconds(200));
    std::this_thread::sleep_for(std::chrono::microseconds(Uniform(0, 4000)));
  }

  void KillOne(const std::vector<pid_t>& ranks) {
    for (const pid_t rank : ranks) kill(rank, SIGSTOP);
    const RunFiles files = Inspect(run_);
    Account(files);
    ++counts_.rounds;
    counts_.during_save += files.saving ? 1 : 0;
    counts_.before_first_step += files.steps_done == std::max<int64_t>(files.resumed_after, 0) ? 1 : 0;
    kill(ranks[Uniform(0, static_cast<int>(ranks.size()) - 1)], SIGKILL);
    for (const pid_t rank : ranks) kill(rank, SIGCONT);
  }

  // Compares what was done before the last kill with where the run went on.
  void Account(const RunFiles& files) {
    if (files.starts > starts_ && starts_ > 0) {
      const int64_t lost = done_ - files.resumed_after;
      counts_.lost_steps += std::max<int64_t>(lost, 0);
      counts_.most_lost = std::max(counts_.most_lost, lost);
      counts_.too_much_lost += lost > kMostLost ? 1 : 0;
      counts_.bad_resumes += files.resumed_after < checkpoint_ ? 1 : 0;
    }
    starts_ = files.starts;
    done_ = files.steps_done;
    checkpoint_ = files.checkpoint;
  }

  const std::string hadal_;
  const int ranks_;
  std::mt19937 random_;
  const std::string work_, run_;
  Counts counts_;
  int64_t starts_ = 0, done_ = 0, checkpoint_ = 0;
};

int Main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: torture HADAL ROUNDS RANKS [SEED]\n");
    return 2;
  }
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  char directory[] = "/tmp/hadal_torture_XXXXXX";
  if (mkdtemp(directory) == nullptr) return 1;
  const uint32_t seed = argc > 4 ? static_cast<uint32_t>(std::stoul(argv[4])) : 1;
  Torture torture(argv[1], std::stoi(argv[3]), seed, directory);
  int64_t steps = -1;
  bool good = PrepareSmallRun(argv[1], directory);
  if (good) steps = torture.Run(std::stoi(argv[2]));
  good = good && torture.Report() && steps > 0 && torture.SameAsUndisturbed(steps);
  std::printf("%lld steps; %s\n", static_cast<long long>(steps), good ? "all checks held" : "FAILED");
  if (good) {
    std::filesystem::remove_all(directory);
  } else {
    std::printf("everything is left in %s\n", directory);
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace hadal::torture

int main(int argc, char** argv) { return hadal::torture::Main(argc, argv); }
