// Histories of two jobs on one run directory, drawn at random: each job is a supervised run. It is started, with
// --take-over or without, its ranks are stopped (SIGSTOP), continued or killed at random moments, half of them while a
// checkpoint is written. At the end all that is stopped goes on, and the histories must end as the undisturbed run:
// the same weights, each step once in metrics.jsonl, and every job that did not finish the run says which other one
// owns the directory.
//
//   histories HADAL SEEDS [FIRST_SEED]      0: all held
#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "runtime/run_directory.h"
#include "tests/torture/supervised_run.h"

namespace hadal::torture {
namespace {

constexpr int kInterval = 20;  // steps between checkpoints
constexpr int kSteps = 600;
constexpr int kMostJobs = 4;  // of a history
constexpr int kEvents = 9;    // after the first start
constexpr int kPatienceSeconds = 120;

void Sleep(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Counts {
  int refused = 0, lost = 0, zombies = 0, kills = 0, stops_in_saves = 0;
};

class History {
 public:
  History(std::string hadal, std::string work, uint32_t seed, Counts& counts)
      : hadal_(std::move(hadal)),
        work_(std::move(work)),
        base_(absl::StrCat(work_, "/", seed)),
        random_(seed),
        counts_(counts) {
    std::filesystem::create_directory(base_);
  }
  std::string run() const { return base_ + "/run"; }

  // Plays the history. Returns what is wrong with its end; "": nothing.
  std::string Play() {
    Start(/*take_over=*/false);
    for (int event = 0; event < kEvents; ++event) {
      WaitForMoment();
      Next();
    }
    for (Job& job : jobs_) Continue(job);
    for (int i = 0; i < kPatienceSeconds * 100 && !AllEnded(); ++i) Sleep(10);
    if (!AllEnded()) return "a job does not end";
    Start(/*take_over=*/false);  // finishes the run, if none has
    for (int i = 0; i < kPatienceSeconds * 100 && !AllEnded(); ++i) Sleep(10);
    return Examine();
  }

 private:
  struct Job {
    std::unique_ptr<SupervisedRun> run;
    std::string log;
    std::vector<pid_t> stopped;
  };

  int Uniform(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  void WaitForMoment() {
    Sleep(Uniform(0, 150));
    if (Uniform(0, 1) == 0) return;
    for (int i = 0; i < 500 && !IsSaving(run()); ++i) std::this_thread::sleep_for(std::chrono::microseconds(200));
    std::this_thread::sleep_for(std::chrono::microseconds(Uniform(0, 4000)));
  }

  // Each job has its own spelling of the directory, by which its ranks are found.
  void Start(bool take_over) {
    std::string directory = base_;
    for (size_t i = 0; i < jobs_.size(); ++i) directory += "/.";
    std::vector<std::string> words = TrainWords(work_, kInterval, kSteps);
    if (take_over) words.emplace_back("--take-over");
    const std::string log = absl::StrCat(base_, "/log", jobs_.size());
    jobs_.push_back({std::make_unique<SupervisedRun>(hadal_, "", words, directory + "/run", log), log, {}});
  }

  void Next() {
    Job& job = jobs_[static_cast<size_t>(Uniform(0, static_cast<int>(jobs_.size()) - 1))];
    const int what = Uniform(0, 9);
    if (what < 3 && jobs_.size() < kMostJobs) return Start(Uniform(0, 1) == 0);
    if (what < 6 && job.stopped.empty()) return Stop(job);
    if (what < 8 && !job.stopped.empty()) return Continue(job);
    Kill(job);
  }

  void Stop(Job& job) {
    counts_.stops_in_saves += IsSaving(run()) ? 1 : 0;
    job.stopped = job.run->Ranks();
    for (const pid_t rank : job.stopped) kill(rank, SIGSTOP);
  }
  void Continue(Job& job) {
    const std::string owner = Contents(CheckpointsDirectory(run()) + "/" + kAttemptName);
    for (const pid_t rank : job.stopped) {
      if (!absl::StrContains(owner, absl::StrCat("\n", rank, " "))) ++counts_.zombies;
      kill(rank, SIGCONT);
    }
    job.stopped.clear();
  }
  void Kill(Job& job) {
    for (const pid_t rank : job.run->Ranks()) {
      kill(rank, SIGKILL);
      ++counts_.kills;
    }
    job.stopped.clear();
  }

  bool AllEnded() {
    return std::ranges::all_of(jobs_, [](Job& job) { return job.run->Poll().has_value(); });
  }

  std::string Examine() {
    for (Job& job : jobs_) {
      const int code = job.run->Poll().value_or(-1);
      const std::string log = Contents(job.log);
      const bool refused = absl::StrContains(log, "is in use by another attempt");
      const bool lost = absl::StrContains(log, "has taken it over");
      counts_.refused += refused ? 1 : 0;
      counts_.lost += lost ? 1 : 0;
      if (code != 0 && (code != 1 || (!refused && !lost))) return absl::StrCat(job.log, ": exit code ", code);
      if (absl::StrContains(log, "REFUSED")) return absl::StrCat(job.log, ": a checkpoint was refused");
    }
    if (jobs_.back().run->Poll() != 0) return "the last job did not finish the run";
    const RunFiles files = Inspect(run());
    if (!files.steps_in_order || files.steps_done != kSteps) return "metrics.jsonl has a gap or a doubled step";
    return SameCheckpoint(hadal_, run(), work_ + "/undisturbed", kSteps) ? "" : "other weights";
  }

  const std::string hadal_, work_, base_;
  std::mt19937 random_;
  Counts& counts_;
  std::vector<Job> jobs_;
};

int Main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: histories HADAL SEEDS [FIRST_SEED]\n");
    return 2;
  }
  char directory[] = "/tmp/hadal_histories_XXXXXX";
  if (mkdtemp(directory) == nullptr) return 1;
  const std::string hadal = argv[1], work = directory;
  const int seeds = std::stoi(argv[2]), first = argc > 3 ? std::stoi(argv[3]) : 1;
  const std::string undisturbed = absl::StrCat(hadal, " ", absl::StrJoin(TrainWords(work, 0, kSteps), " "),
                                               " --run-dir ", work, "/undisturbed > ", work, "/undisturbed.log 2>&1");
  int wrong = PrepareSmallRun(hadal, work) && Shell(undisturbed) == 0 ? 0 : 1;
  Counts counts;
  for (int seed = first; seed < first + seeds && wrong == 0; ++seed) {
    History history(hadal, work, static_cast<uint32_t>(seed), counts);
    const std::string what = history.Play();
    if (what.empty()) continue;
    std::printf("seed %d: %s\n", seed, what.c_str());
    ++wrong;
  }
  std::printf(
      "histories %d; jobs refused %d, taken over %d; stopped jobs that woke up without the directory %d; kills %d; "
      "stops during a save %d\n%s\n",
      seeds, counts.refused, counts.lost, counts.zombies, counts.kills, counts.stops_in_saves,
      wrong == 0 ? "all checks held" : absl::StrCat("FAILED; everything is left in ", work).c_str());
  if (wrong == 0) std::filesystem::remove_all(work);
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace hadal::torture

int main(int argc, char** argv) { return hadal::torture::Main(argc, argv); }
