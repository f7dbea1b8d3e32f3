// Keeps the state of one run of `hadal compare` between calls of that command, in RUN_DIR/cell.json, and decides
// whether the run is to be started, continued, or left as it is. The run trains one cell (combination of settings) of a
// grid (comparison_grid.h).
//
// cell.json says how the run ended and how long it took. It is written when a run starts and when it ends, however it
// ends; after a kill it still says "running". The training results are other files of the run directory.
// Thread safety: any thread may call the functions; one process runs a cell at a time. Blocking: file input and output.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "configs/run.pb.h"

namespace hadal {

inline constexpr const char* kTranslationFile = "test.translation";  // of a test set, in the run directory

// How the last run of a cell ended.
enum class CellEnd {
  kNone,         // it has never run
  kRunning,      // it is running, or was killed together with its `hadal compare`
  kDone,         // exit code 0
  kDiverged,     // exit code 4: not finite
  kCut,          // it reached its run_minutes
  kInterrupted,  // stopped with the grid
  kFailed,       // any other exit code
};
// "done", "diverged", …: the words in cell.json.
std::string ToString(CellEnd end);

struct CellRun {
  CellEnd end = CellEnd::kNone;
  int exit_code = 0;
  double wall_seconds = 0;  // of all its runs
  double cpu_seconds = 0;   // user and system time of its processes, on this host
  // nll of the validated sentences under the training text's token frequencies (inspect.h).
  std::optional<double> unigram_nll;
};

// Returns kNone for a cell without the file.  Errors: DataLoss if the file cannot be parsed; ReadFile's.
absl::StatusOr<CellRun> ReadCellRun(const std::string& run_directory);
absl::Status WriteCellRun(const std::string& run_directory, const CellRun& run);

// The next action for a cell.
enum class CellTask {
  kStart,    // it has never run
  kGoOn,     // it was interrupted, cut (and may run longer), or failed
  kNothing,  // it is finished
  kChanged,  // its directory holds a run of another config
};
struct CellPlan {
  CellTask task = CellTask::kStart;
  std::string difference;  // kChanged: "  FIELD: BEFORE -> AFTER\n" …
};
// A finished cell continues if its limits (stop.*) were moved. `run_seconds`: the limit of a run's time; 0: none.
// Errors: those of reading the run's config.
absl::StatusOr<CellPlan> PlanCell(const std::string& run_directory, const CellRun& run, const config::RunConfig& config,
                                  double run_seconds);

}  // namespace hadal
