#include "tools/compare/comparison_runner.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "launch/child_process.h"
#include "launch/exit_code.h"
#include "runtime/clock.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"
#include "tools/compare/comparison_result.h"
#include "tools/config/config_origin.h"
#include "tools/output/append_whole.h"
#include "tools/output/human_units.h"
#include "tools/output/work_progress.h"
#include "tools/report/run_summary.h"

namespace hadal {
namespace {

constexpr double kLookSeconds = 0.5;                       // between two looks at a run's metrics
constexpr absl::Duration kPause = absl::Milliseconds(20);  // between two looks at a child

// Why a child was asked to stop.
enum class StopCause { kNone, kRunBudget, kTotalBudget, kSignal };

std::vector<std::string> TrainCommand(const GridCell& cell, const ComparisonOptions& options) {
  std::vector<std::string> command;
  const int ranks = cell.ranks > 0 ? cell.ranks : options.ranks;
  if (ranks > 1) {
    const char* const own = std::getenv("HADAL_MPIRUN_OPTIONS");  // other MPIs have other options than Open MPI
    const std::vector<std::string> placement =
        absl::StrSplit(own != nullptr ? own : "--bind-to none --oversubscribe", ' ', absl::SkipEmpty());
    command = {options.program, "supervise", "--", "mpirun", "-n", absl::StrCat(ranks)};
    command.insert(command.end(), placement.begin(), placement.end());
  }
  command.insert(command.end(), {options.program, "train"});
  command.insert(command.end(), cell.files.begin(), cell.files.end());
  for (const std::string& override_text : cell.overrides) command.insert(command.end(), {"--set", override_text});
  command.insert(command.end(), {"--run-dir", CellDirectory(options.out, cell)});
  if (options.accept_changes) command.push_back("--accept-changes");
  return command;
}

std::vector<std::string> TranslateCommand(const GridCell& cell, const ComparisonOptions& options,
                                          const std::string& output) {
  return {options.program, "translate",  CellDirectory(options.out, cell), "--input", options.test_source, "--out",
          output,          "--overwrite"};
}

CellEnd EndOf(int exit_code, StopCause cause) {
  if (exit_code == kExitDone) return CellEnd::kDone;
  if (exit_code == kExitDiverged) return CellEnd::kDiverged;
  // A child that was stopped before it listened to signals is ended by one; nothing was done that could be lost.
  const bool stopped = exit_code == kExitRequeue || (cause != StopCause::kNone && exit_code > 128);
  if (!stopped) return CellEnd::kFailed;
  return cause == StopCause::kRunBudget ? CellEnd::kCut : CellEnd::kInterrupted;
}

// The last step in the metrics of a run that may be in progress; 0: none yet.
int64_t LastStep(const std::string& directory) {
  constexpr int kMostLines = 50;  // validation, checkpoints and notices come between two steps
  constexpr std::string_view kStep = R"("event":"step","step":)";
  absl::StatusOr<ReverseLines> lines = ReverseLines::Open(JoinPath(directory, kMetricsName));
  std::string line;
  for (int i = 0; lines.ok() && i < kMostLines; ++i) {
    const absl::StatusOr<bool> more = lines->Next(line);
    if (!more.ok() || !*more) break;
    const size_t at = line.find(kStep);
    if (at != std::string::npos && lines->complete()) return std::atoll(line.c_str() + at + kStep.size());
  }
  return 0;
}

// "300 steps, best validation nll 4.61, 0.54 below the unigram level: trains", "300 steps, 5.29k target tokens/s".
std::string ResultText(const std::string& directory, const CellRun& run, bool judged) {
  const absl::StatusOr<RunRecord> record = ReadRun(directory);
  if (absl::IsNotFound(record.status())) return "no steps";
  if (!record.ok()) return absl::StrCat("no steps (", record.status().message(), ")");
  const CellResult result = JudgeCell(run, *record);
  std::string text = absl::StrCat(HumanCount(result.steps), " steps");
  if (!judged) {
    const absl::StatusOr<RunSummary> summary = Summarize(*record);
    if (summary.ok()) absl::StrAppend(&text, ", ", HumanRate(summary->tokens_per_second()), " target tokens/s");
    return text;
  }
  if (result.best_nll) absl::StrAppendFormat(&text, ", best validation nll %.3f", *result.best_nll);
  if (result.below_unigram) {
    absl::StrAppendFormat(&text, ", %.2f %s the unigram level", std::abs(*result.below_unigram),
                          *result.below_unigram < 0 ? "above" : "below");
  }
  if (result.verdict != Verdict::kUnknown) absl::StrAppend(&text, ": ", ToString(result.verdict));
  if (result.verdict == Verdict::kTrains || record->diagnoses.empty()) return text;
  const TextRecord& diagnosis = record->diagnoses.back();
  if (absl::StartsWith(diagnosis.text, "over: ")) return text;
  return absl::StrCat(text, "\n  diagnosis at step ", diagnosis.step, ": ", diagnosis.text);
}

class Runner {
 public:
  Runner(const ComparisonGrid& grid, const ComparisonOptions& options, std::ostream& log)
      : grid_(grid), options_(options), log_(log) {}

  absl::StatusOr<ComparisonOutcome> Run() {
    HADAL_RETURN_IF_ERROR(Prepare());
    HADAL_ASSIGN_OR_RETURN(OutputFolder folder, OutputFolder::Take(options_.out.empty() ? "." : options_.out));
    outcome_.folder.emplace(std::move(folder));
    HADAL_RETURN_IF_ERROR(MakeDirectories(JoinPath(options_.out, "logs")));
    HADAL_RETURN_IF_ERROR(SumSpent());
    for (const int index : chosen_) {
      outcome_.stopped = outcome_.stopped || options_.stopped();
      HADAL_RETURN_IF_ERROR(RunCell(index));
    }
    return std::move(outcome_);
  }

 private:
  // Chooses the cells and refuses what no child could run.
  absl::Status Prepare() {
    const int cells = static_cast<int>(grid_.cells.size());
    for (const int number : options_.chosen) {
      if (number < 1 || number > cells) {
        return absl::InvalidArgumentError(
            absl::StrCat("--run ", number, ": the grid's runs are numbered from 1 to ", cells));
      }
      chosen_.push_back(number - 1);
    }
    for (int i = 0; i < cells && options_.chosen.empty(); ++i) chosen_.push_back(i);
    outcome_.chosen = static_cast<int>(chosen_.size());
    for (const int index : chosen_) {
      const GridCell& cell = grid_.cells[index];
      const absl::Status status = WithOrigins(corpora_.Check(cell.config), cell.files, cell.overrides);
      if (!status.ok()) return absl::Status(status.code(), absl::StrCat(cell.name, ": ", status.message()));
    }
    return absl::OkStatus();
  }

  // The wall time that earlier calls have spent.
  absl::Status SumSpent() {
    for (const GridCell& cell : grid_.cells) {
      HADAL_ASSIGN_OR_RETURN(const CellRun run, ReadCellRun(CellDirectory(options_.out, cell)));
      spent_seconds_ += run.wall_seconds;
    }
    return absl::OkStatus();
  }

  bool BudgetUsedUp(double running_seconds) const {
    const double total = 60 * grid_.settings.total_minutes();
    return total > 0 && spent_seconds_ + running_seconds >= total;
  }

  std::string Tag(int index) const {
    return absl::StrFormat("[%*d/%d] ", static_cast<int>(absl::StrCat(grid_.cells.size()).size()), index + 1,
                           grid_.cells.size());
  }

  absl::Status RunCell(int index) {
    const GridCell& cell = grid_.cells[index];
    const std::string directory = CellDirectory(options_.out, cell);
    HADAL_ASSIGN_OR_RETURN(CellRun run, ReadCellRun(directory));
    HADAL_ASSIGN_OR_RETURN(CellPlan plan, PlanCell(directory, run, cell.config, 60 * grid_.settings.run_minutes()));
    if (plan.task == CellTask::kChanged && options_.accept_changes) plan.task = CellTask::kGoOn;
    if (plan.task == CellTask::kChanged) {
      ++outcome_.changed;
      log_ << Tag(index) << cell.name << ": not run; " << directory << " holds a run of another config:\n"
           << plan.difference << "Remove the directory to run it anew, or give --accept-changes to go on with it."
           << std::endl;
      return absl::OkStatus();
    }
    if (plan.task == CellTask::kNothing) {
      ++outcome_.finished;
      log_ << Tag(index) << cell.name << ": " << ToString(run.end) << " before" << std::endl;
      return Translate(index, /*anew=*/false, run.end);
    }
    if (outcome_.stopped || BudgetUsedUp(0)) {
      ++outcome_.waiting;
      if (!outcome_.stopped && !told_budget_) {
        log_ << absl::StrFormat("The budget of %g minutes is used up; total_minutes in the grid sets it.",
                                grid_.settings.total_minutes())
             << std::endl;
        told_budget_ = true;
      }
      return absl::OkStatus();
    }
    return Train(index, plan.task == CellTask::kGoOn && run.end != CellEnd::kNone, directory, run);
  }

  absl::Status Train(int index, bool again, const std::string& directory, CellRun run) {
    const GridCell& cell = grid_.cells[index];
    log_ << Tag(index) << cell.name << (again ? absl::StrCat(": goes on (was ", ToString(run.end), ")") : ": starts")
         << Expected(cell, run.wall_seconds) << std::endl;
    if (options_.judged) {  // also of a run that goes on: its corpus may be another by now
      HADAL_ASSIGN_OR_RETURN(run.unigram_nll, corpora_.Unigram(cell.config));
    }
    run.end = CellEnd::kRunning;
    HADAL_RETURN_IF_ERROR(RemoveTree(JoinPath(directory, kTranslationFile)));  // of weights that will be others
    HADAL_RETURN_IF_ERROR(WriteCellRun(directory, run));
    const Stopwatch watch;
    HADAL_ASSIGN_OR_RETURN(ChildProcess child,
                           ChildProcess::Start(TrainCommand(cell, options_), CellLogPath(options_.out, cell)));
    const auto [end, cause] = Wait(child, watch, run.wall_seconds, cell);
    const double seconds = watch.Seconds();
    run.wall_seconds += seconds;
    run.cpu_seconds += end.cpu_seconds;
    run.exit_code = end.exit_code;
    run.end = EndOf(end.exit_code, cause);
    spent_seconds_ += seconds;
    measured_seconds_ += run.end == CellEnd::kDone && !again ? seconds : 0;
    measured_cost_ += run.end == CellEnd::kDone && !again ? cell.cost : 0;
    HADAL_RETURN_IF_ERROR(WriteCellRun(directory, run));
    Count(run.end);
    log_ << Tag(index) << cell.name << ": " << ToString(run.end) << " in " << HumanDuration(seconds) << ", "
         << ResultText(directory, run, options_.judged);
    if (run.end == CellEnd::kFailed) {
      log_ << "\n  exit code " << run.exit_code << "; its output is in " << CellLogPath(options_.out, cell);
    }
    log_ << std::endl;
    return Translate(index, /*anew=*/true, run.end);
  }

  // The test set, by a cell that is finished and has weights to translate with.
  absl::Status Translate(int index, bool anew, CellEnd end) {
    const GridCell& cell = grid_.cells[index];
    const std::string path = JoinPath(CellDirectory(options_.out, cell), kTranslationFile);
    if (options_.test_source.empty() || (end != CellEnd::kDone && end != CellEnd::kCut)) return absl::OkStatus();
    if ((!anew && PathExists(path)) || outcome_.stopped) return absl::OkStatus();
    const Stopwatch watch;
    HADAL_ASSIGN_OR_RETURN(ChildProcess child, ChildProcess::Start(TranslateCommand(cell, options_, path),
                                                                   CellLogPath(options_.out, cell)));
    std::optional<ChildEnd> end_of_child;
    {
      const WorkProgress progress(absl::StrCat(cell.name, ": translating"), "", 0);
      while (!end_of_child && !options_.stopped()) {
        absl::SleepFor(kPause);
        end_of_child = child.Poll();
      }
    }
    if (!end_of_child) {
      outcome_.stopped = true;
      return absl::OkStatus();
    }
    if (end_of_child->exit_code != kExitDone) {
      ++outcome_.failed;
      log_ << Tag(index) << cell.name << ": not translated, exit code " << end_of_child->exit_code
           << "; its output is in " << CellLogPath(options_.out, cell) << std::endl;
      return absl::OkStatus();
    }
    log_ << Tag(index) << cell.name << ": translated in " << HumanDuration(watch.Seconds()) << std::endl;
    return absl::OkStatus();
  }

  void Count(CellEnd end) {
    if (end == CellEnd::kFailed) {
      ++outcome_.failed;
    } else if (end == CellEnd::kInterrupted) {
      ++outcome_.waiting;
      // A child that stopped by itself has met a limit that holds for this process too: the end of a Slurm job.
      outcome_.stopped = outcome_.stopped || !BudgetUsedUp(0);
    } else {
      ++outcome_.finished;
    }
  }

  // Waits for the child's end, asking it to stop when a limit is reached: again and again, because a process that is
  // still coming up may miss the first time.
  std::pair<ChildEnd, StopCause> Wait(ChildProcess& child, const Stopwatch& watch, double before_seconds,
                                      const GridCell& cell) {
    constexpr double kRemindSeconds = 1;
    const std::string directory = CellDirectory(options_.out, cell);
    int64_t step = LastStep(directory);
    WorkProgress progress(cell.name, "steps", std::max<int64_t>(0, cell.config.stop().steps() - step));
    double looked_at = 0;
    StopCause cause = StopCause::kNone;
    double asked_at = 0;
    while (true) {
      if (std::optional<ChildEnd> end = child.Poll()) return {*end, cause};
      const double seconds = watch.Seconds(), run_cap = 60 * grid_.settings.run_minutes();
      if (options_.stopped()) {
        cause = StopCause::kSignal;
        outcome_.stopped = true;
      } else if (run_cap > 0 && before_seconds + seconds >= run_cap) {
        cause = StopCause::kRunBudget;
      } else if (BudgetUsedUp(seconds)) {
        cause = StopCause::kTotalBudget;
      }
      if (seconds - looked_at >= kLookSeconds) {
        looked_at = seconds;
        const int64_t now = std::max(step, LastStep(directory));
        progress.Advance(now - std::exchange(step, now));
      }
      if (cause != StopCause::kNone && (asked_at == 0 || seconds - asked_at >= kRemindSeconds)) {
        child.AskToStop();
        asked_at = seconds;
      }
      absl::SleepFor(kPause);
    }
  }

  // ", about 40s", from the runs that this call has measured; at most what run_minutes leave.
  std::string Expected(const GridCell& cell, double before_seconds) const {
    const double run_cap = 60 * grid_.settings.run_minutes();
    const double measured = measured_cost_ == 0 ? INFINITY : measured_seconds_ / measured_cost_ * cell.cost;
    const double seconds = std::min(measured, run_cap > 0 ? std::max(0.0, run_cap - before_seconds) : INFINITY);
    if (std::isinf(seconds)) return "";
    return absl::StrCat(seconds < measured ? ", at most " : ", about ", HumanDuration(seconds));
  }

  const ComparisonGrid& grid_;
  const ComparisonOptions& options_;
  std::ostream& log_;
  std::vector<int> chosen_;  // indices of cells
  ComparisonOutcome outcome_;
  double spent_seconds_ = 0;                         // wall time of all cells
  double measured_seconds_ = 0, measured_cost_ = 0;  // of the runs that this call did from start to end
  bool told_budget_ = false;
  ComparisonCorpora corpora_;
};

}  // namespace

absl::StatusOr<ComparisonOutcome> RunComparison(const ComparisonGrid& grid, const ComparisonOptions& options,
                                                std::ostream& log) {
  return Runner(grid, options, log).Run();
}

absl::Status ListComparison(const ComparisonGrid& grid, const ComparisonOptions& options, std::ostream& out) {
  double total = 0;
  size_t width = 4;
  for (const GridCell& cell : grid.cells) {
    total += cell.cost;
    width = std::max(width, cell.name.size());
  }
  out << absl::StrFormat("%4s  %-*s  %6s  %s\n", "run", width, "cell", "share", "state");
  for (size_t i = 0; i < grid.cells.size(); ++i) {
    const GridCell& cell = grid.cells[i];
    HADAL_ASSIGN_OR_RETURN(const CellRun run, ReadCellRun(CellDirectory(options.out, cell)));
    out << absl::StrFormat("%4d  %-*s  %5.1f%%  %s\n", i + 1, width, cell.name, 100 * cell.cost / total,
                           run.end == CellEnd::kNone ? "not yet run" : ToString(run.end));
  }
  out << std::flush;
  return absl::OkStatus();
}

}  // namespace hadal
