// What is known of one cell's run between calls of `hadal compare`: RUN_DIR/cell.json, and whether it has to run
// (again).
//
// The file is written when a run starts and when it ends, whatever its end. What was learned is not in it but in the
// run directory. Thread safety: functions may be called from any thread; one process runs a cell at a time. Blocking:
// file input and output.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "configs/run.pb.h"

namespace hadal {

// How a cell's last run ended.
enum class CellEnd {
  kNone,         // it has never run
  kRunning,      // it runs, or was killed with its `hadal compare`
  kDone,         // exit code 0
  kDiverged,     // exit code 4: not finite
  kCut,          // its run_minutes were over
  kInterrupted,  // stopped with the grid
  kFailed,       // any other exit code
};
// "done", "diverged", …: as in cell.json.
std::string ToString(CellEnd end);

struct CellRun {
  CellEnd end = CellEnd::kNone;
  int exit_code = 0;
  double wall_seconds = 0;  // of all its runs together
  double cpu_seconds = 0;   // user and system time of its processes, on this host
  // nll of the validated sentences under the training text's token frequencies (inspect_corpus.h).
  std::optional<double> unigram_nll;
};

// Errors: DataLoss where the file cannot be understood; ReadFile's. A cell without the file: kNone.
absl::StatusOr<CellRun> ReadCellRun(const std::string& run_directory);
absl::Status WriteCellRun(const std::string& run_directory, const CellRun& run);

// What to do with a cell.
enum class CellTask {
  kStart,    // it has never run
  kGoOn,     // it was interrupted, cut and may run longer, or failed
  kNothing,  // it is finished
  kChanged,  // its directory holds a run of another config
};
struct CellPlan {
  CellTask task = CellTask::kStart;
  std::string difference;  // kChanged: "  FIELD: BEFORE -> AFTER\n" …
};
// A finished cell whose limits (stop.*) were moved goes on. `run_seconds`: the cap of a run, 0 for none.
// Errors: those of reading the run's config.
absl::StatusOr<CellPlan> PlanCell(const std::string& run_directory, const CellRun& run, const config::RunConfig& config,
                                  double run_seconds);

}  // namespace hadal
