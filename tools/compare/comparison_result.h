// Judges the result of one run of `hadal compare` by one rule for all methods: has the model learned from context, or
// only how frequent each token is? The run trains one cell (combination of settings) of a grid (comparison_grid.h).
//
//   below = H − best validation nll       in nats per target token
//   H     = the nll of the same validation sentences if every token is predicted by its frequency in the training text
//   trains   below ≥ 0.3     it has learned from context
//   fails    below < 0.05    it has learned token frequencies at most
//   between  otherwise
//   too short  as fails, but its training nll was still falling (by at least 0.05 between the means of the fourth and
//            the last fifth of its steps), or the run has fewer than five steps
//   diverged the run ended because its numbers were not finite; takes precedence over the others
//   not known  H or the validation nll is missing
// Why not the loss: with Post-LN the loss also falls at first if training fails, through the output layer alone; only
// the distance below H separates the two. Thread safety: pure, except for reading and writing files.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "configs/run.pb.h"
#include "runtime/data/corpus_manifest.h"
#include "tools/compare/comparison_grid.h"
#include "tools/output/run_record.h"

namespace hadal {

inline constexpr const char* kTranslationFile = "test.translation";  // of a test set, in the run directory

// RUN_DIR/cell.json keeps a CellRun, the state of a cell's run between calls of `hadal compare`. It is written when a
// run starts and when it ends; after a kill it still says "running". One process runs a cell at a time.

// How the last run of a cell ended.
enum class CellEnd {
  kNone,         // it has never run
  kRunning,      // it is running, or was killed together with its `hadal compare`
  kDone,         // exit code 0
  kDiverged,     // exit code 4: not finite
  kCut,          // stopped because it reached the grid's run_minutes
  kInterrupted,  // stopped because the grid's budget was used up or a signal arrived
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

// Returns kNone for a cell without the file.  Errors: DataLoss if the file cannot be parsed; those of ReadFile.
absl::StatusOr<CellRun> ReadCellRun(const std::string& run_directory);
absl::Status WriteCellRun(const std::string& run_directory, const CellRun& run);

// The next action for a cell.
enum class CellTask {
  kStart,    // it has never run
  kGoOn,     // interrupted, killed, cut (and may run longer by now), failed, or its limits have changed
  kNothing,  // it is finished
  kChanged,  // its directory holds a run of another config
};
struct CellPlan {
  CellTask task = CellTask::kStart;
  std::string difference;  // kChanged: "  FIELD: BEFORE -> AFTER\n" …
};
// Returns the next action for the cell whose last run is `run`. A finished cell continues if its limits (stop.*) in
// `config` differ from those of its run. `run_seconds`: limit of CellRun::wall_seconds; 0: none. Errors: those of
// reading the run's config.
absl::StatusOr<CellPlan> PlanCell(const std::string& run_directory, const CellRun& run, const config::RunConfig& config,
                                  double run_seconds);

inline constexpr double kTrainsBelow = 0.3, kFailsBelow = 0.05;  // nats per target token

enum class Verdict { kTrains, kBetween, kFails, kTooShort, kDiverged, kUnknown };
// "trains", "between", "fails", "too short", "diverged", "not known".
std::string ToString(Verdict verdict);

struct CellResult {
  int64_t steps = 0;
  std::optional<double> loss;      // of the last step, if finite
  std::optional<double> best_nll;  // of all validations
  int64_t best_step = 0;
  std::optional<double> below_unigram;  // "below" of the table
  Verdict verdict = Verdict::kUnknown;
};

CellResult JudgeCell(const CellRun& run, const RunRecord& record);

// Returns H of the samples that a run validates; nullopt if there are none: it does not validate, or no sample fits its
// micro-batches (the run itself then fails with a remedy).
// Errors: those of opening the corpora; DataLoss if a file is changed meanwhile.
absl::StatusOr<std::optional<double>> UnigramLevel(const config::RunConfig& config);

// ComparisonCorpora checks and measures the corpora of a grid's runs before they start. It opens each corpus once,
// however many cells use it.
class ComparisonCorpora {
 public:
  // OK if a training run of this config could start.
  // Errors: those of the config and of opening the training corpus; InvalidArgument if the model does not fit the
  // corpus's vocabulary.
  absl::Status Check(const config::RunConfig& config);
  // Returns UnigramLevel(config).
  absl::StatusOr<std::optional<double>> Unigram(const config::RunConfig& config);

 private:
  std::map<std::string, CorpusManifest> manifests_;  // by corpus
  // By the corpora and all settings that determine which samples are validated.
  std::map<std::tuple<std::string, std::string, int32_t, bool, int32_t, int32_t, int32_t>, std::optional<double>>
      levels_;
};

inline constexpr const char* kComparisonRecordName = "grid.json";
inline constexpr const char* kComparisonTables = "tables";  // the folder of the report's tables

// The paths of a cell's run directory and of the output of its processes.
std::string CellDirectory(const std::string& out, const GridCell& cell);
std::string CellLogPath(const std::string& out, const GridCell& cell);

// Writes the results of a comparison's runs for tools/python/pyhadal/comparison.py:
//
//   OUT/grid.json   title, note, the verdicts' limits, axes with their labels, and for each cell: its labels, run
//                   directory and log (relative to OUT), state, exit code, times, result and verdict
// A result that does not exist has no key; a number that is not finite is null. Times in seconds, nll in nats per
// target token. Errors: those of reading existing files and of writing.
absl::Status WriteComparisonRecord(const ComparisonGrid& grid, const std::string& out);

}  // namespace hadal
