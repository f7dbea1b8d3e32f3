// A training run under `hadal supervise`, seen from outside: its ranks as processes, its files as what a user would
// find.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace hadal::torture {

// Runs a shell command; its exit code.
int Shell(const std::string& command);

// Makes a small corpus and a config in the directory `work`; false: it could not.
bool PrepareSmallRun(const std::string& hadal, const std::string& work);
// The words after `hadal` that train on them, without --run-dir.
std::vector<std::string> TrainWords(const std::string& work, int save_every, int64_t steps);
// Whether both runs have the same checkpoint of `step`, bit for bit.
bool SameCheckpoint(const std::string& hadal, const std::string& run, const std::string& other, int64_t step);

// What the run directory says at one moment.
struct RunFiles {
  int64_t resumed_after = -1;  // steps done before the last start that metrics.jsonl knows; -1: none
  int64_t starts = 0;          // how often it was started, as far as metrics.jsonl knows
  int64_t steps_done = 0;      // whole step lines
  bool steps_in_order = true;  // 0, 1, 2 … without a gap or a double
  int64_t checkpoint = 0;      // step of the newest committed checkpoint; 0: none
  bool saving = false;         // a checkpoint's temporary directory is there
};
RunFiles Inspect(const std::string& run_directory);
bool IsSaving(const std::string& run_directory);

class SupervisedRun {
 public:
  // Starts `hadal supervise … -- [mpirun -n ranks] hadal train …` with its output in `log`.
  // `train`: the words after `hadal`. The run directory in it is what tells its ranks from other processes.
  SupervisedRun(const std::string& hadal, const std::string& launcher, const std::vector<std::string>& train,
                const std::string& run_directory, const std::string& log);

  // Processes of the run's ranks at this moment.
  std::vector<pid_t> Ranks() const;
  // Asks the run to save and stop; the supervisor's exit code.
  int Stop();
  // The supervisor's exit code; nullopt: it has not ended.
  std::optional<int> Poll();

 private:
  std::string hadal_, run_directory_;
  pid_t supervisor_ = -1;
  std::optional<int> code_;
};

}  // namespace hadal::torture
