// `hadal sweep LAYOUTS CONFIG… [--set a.b=c]… [--out DIR] [--submit "sbatch … sweep.sbatch" | --report-only]`
//
// Trains one config on each layout of a list (tools/plan/layout_list.h) and writes the scaling report: how efficient
// more ranks are, and where the rest of the time goes.
//
//   OUT/runs/NAME                    the run directory of a layout, OUT/logs/NAME.log what it printed
//   OUT/scaling.{txt,html,json,md}   the report of all layouts that have run; without Python the text alone
//   OUT/submitted                    what the command of the last --submit printed
// Layouts run one after the other, under mpirun if they have several ranks. A later call continues: it skips finished
// layouts and resumes interrupted ones. With --submit nothing runs here: unfinished layouts are submitted as a job
// array, unless squeue shows, or cannot rule out, that the last one has not ended. From then on, and with
// --report-only, a call without --submit trains nothing either: it writes the report and names the layouts that have
// not finished.
// Exit codes: 0 all layouts have run (or were submitted, or are reported), 1 one failed or has another config, or an
// array is pending, 2 bad list or config, or nothing to report, 85 stopped.
#include "tools/commands.h"

#include <stdlib.h>

#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "launch/child_process.h"
#include "launch/exit_code.h"
#include "launch/signals.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"
#include "tools/compare/comparison_result.h"
#include "tools/compare/comparison_runner.h"
#include "tools/config/config_loading.h"
#include "tools/output/run_record.h"
#include "tools/output/staged_output.h"
#include "tools/plan/cost_files.h"
#include "tools/plan/layout_list.h"
#include "tools/python_child.h"
#include "tools/report/summary.h"
#include "tools/tool_exit_code.h"

namespace hadal {
namespace {

constexpr int64_t kMostListBytes = 1 << 20;

struct SweepArguments {
  std::string layouts;
  ConfigArguments config;
  std::string out = "sweep";
  std::string submit;
  CostFiles costs;  // for the report
  bool accept_changes = false, report_only = false;
};

// What the command of the last submission printed. While it exists, the layouts are the array's: nothing trains here.
std::string SubmissionPath(const SweepArguments& arguments) { return JoinPath(arguments.out, "submitted"); }

// A grid of one axis, the layouts, in the order of the list.
absl::StatusOr<ComparisonGrid> MakeGrid(const SweepArguments& arguments, const std::vector<Layout>& layouts) {
  ComparisonGrid grid;
  grid.axes.push_back({.name = "layout"});
  for (const Layout& layout : layouts) {
    GridCell cell{.name = layout.name,
                  .place = {static_cast<int>(grid.cells.size())},
                  .files = arguments.config.files,
                  .overrides = arguments.config.overrides,
                  .ranks = layout.ranks};
    cell.overrides.insert(cell.overrides.end(), layout.overrides.begin(), layout.overrides.end());
    absl::StatusOr<config::RunConfig> config = LoadConfig(cell.files, cell.overrides);
    if (!config.ok()) {
      return absl::Status(config.status().code(),
                          absl::StrCat("layout \"", layout.name, "\": ", config.status().message()));
    }
    cell.config = *std::move(config);
    cell.cost = CellCost(cell.config);
    grid.axes[0].labels.push_back(layout.name);
    grid.cells.push_back(std::move(cell));
  }
  return grid;
}

// Whether the run has ended by a limit of its config, and by the present number of steps if that was the one.
bool IsFinished(const std::string& out, const GridCell& cell) {
  const absl::StatusOr<RunRecord> run = ReadRun(CellDirectory(out, cell));
  if (!run.ok() || run->finish.empty() || run->finish == kStoppedToResume) return false;
  return run->finish != kAllStepsDone || run->steps.back().step >= cell.config.stop().steps();
}

// The report's files may be replaced where the text, which is written first, is a summary.
absl::Status CheckScalingFiles(const std::string& out) {
  std::vector<std::string> paths;
  for (const char* ending : {".txt", ".html", ".json", ".md"}) paths.push_back(JoinPath(out, "scaling") + ending);
  return CheckOutputs(paths, {.inputs = {}, .is_own = [](std::string_view text) {
                                return text.substr(0, text.find('\n')).ends_with(" parameters");
                              }});
}

// Of the layouts that have steps to show. Returns whether there are any.
absl::StatusOr<bool> WriteScaling(const SweepArguments& arguments, const ComparisonGrid& grid) {
  const std::string& out = arguments.out;
  std::vector<std::string> directories;
  for (const GridCell& cell : grid.cells) {
    if (ReadRun(CellDirectory(out, cell)).ok()) directories.push_back(CellDirectory(out, cell));
  }
  if (directories.empty()) return false;
  HADAL_ASSIGN_OR_RETURN(const std::string files, WriteReport(directories, JoinPath(out, "scaling"), arguments.costs));
  std::cout << files << std::flush;
  return true;
}

// Trains nothing, and says which layouts the report lacks.
absl::StatusOr<int> ReportOnly(const SweepArguments& arguments, const ComparisonGrid& grid) {
  HADAL_ASSIGN_OR_RETURN(const bool any, WriteScaling(arguments, grid));
  std::vector<std::string> unfinished;
  for (const GridCell& cell : grid.cells) {
    if (!IsFinished(arguments.out, cell)) unfinished.push_back(cell.name);
  }
  if (!unfinished.empty()) {
    std::cout << unfinished.size() << " of " << grid.cells.size()
              << " layouts have not finished: " << absl::StrJoin(unfinished, ", ") << "\n";
    if (PathExists(SubmissionPath(arguments))) {
      std::cout
          << "They are left to the job array that was submitted. After its end --submit submits them again; without "
          << SubmissionPath(arguments) << " they are trained here.\n";
    }
    std::cout << std::flush;
  }
  if (!any) return absl::NotFoundError(absl::StrCat(arguments.out, "/runs: no layout has a step to report yet"));
  return kExitDone;
}

struct CommandOutput {
  int exit_code = 0;
  std::string text;
};

// Runs a command to its end; `file` holds its output then.
absl::StatusOr<CommandOutput> RunToEnd(const std::vector<std::string>& command, const std::string& file) {
  HADAL_RETURN_IF_ERROR(RemoveTree(file));
  HADAL_ASSIGN_OR_RETURN(ChildProcess child, ChildProcess::Start(command, file));
  std::optional<ChildEnd> end;
  while (!(end = child.Poll())) absl::SleepFor(absl::Milliseconds(20));
  HADAL_ASSIGN_OR_RETURN(std::string text, ReadFile(file, kMostListBytes));
  return CommandOutput{end->exit_code, std::move(text)};
}

// The number in what sbatch prints: "Submitted batch job 4711", or "4711" with --parsable; "" if there is none.
std::string JobOf(const std::string& submission) {
  const std::string before = "Submitted batch job ";
  const size_t at = submission.rfind(before);
  const std::string text = at == std::string::npos ? submission : submission.substr(at + before.size());
  return text.substr(0, text.find_first_not_of("0123456789"));
}

// Refuses a second array beside one that squeue does not know to have ended: both would train the same runs.
absl::Status CheckEnded(const SweepArguments& arguments) {
  const std::string path = SubmissionPath(arguments);
  if (!PathExists(path)) return absl::OkStatus();
  HADAL_ASSIGN_OR_RETURN(const std::string submission, ReadFile(path, kMostListBytes));
  const std::string job = JobOf(submission), remedy = absl::StrCat("remove ", path, " if its jobs have ended");
  if (job.empty()) return absl::AbortedError(absl::StrCat("submitted before, without a job number; ", remedy));
  HADAL_ASSIGN_OR_RETURN(const CommandOutput queue, RunToEnd({"squeue", "--noheader", absl::StrCat("--jobs=", job)},
                                                             JoinPath(arguments.out, "squeue.log")));
  HADAL_RETURN_IF_ERROR(RemoveTree(JoinPath(arguments.out, "squeue.log")));
  const bool none = queue.exit_code == 0 && absl::StripAsciiWhitespace(queue.text).empty();
  if (none || absl::StrContains(queue.text, "Invalid job id")) return absl::OkStatus();
  return absl::AbortedError(
      queue.exit_code == 0
          ? absl::StrCat("job ", job, " of the last submission has not ended; wait for it, or scancel ", job)
          : absl::StrCat("squeue does not say whether job ", job, " of the last submission has ended; ", remedy));
}

// sbatch, told which lines of the list are to run. Returns its exit code.
absl::StatusOr<int> Submit(const SweepArguments& arguments, const ComparisonGrid& grid,
                           const std::vector<Layout>& layouts) {
  std::vector<int> lines;
  for (size_t i = 0; i < layouts.size(); ++i) {
    if (!IsFinished(arguments.out, grid.cells[i])) lines.push_back(layouts[i].line);
  }
  if (lines.empty()) {
    std::cout << "every layout has run" << std::endl;
    return kExitDone;
  }
  HADAL_ASSIGN_OR_RETURN(const OutputFolder folder, OutputFolder::Take(arguments.out));
  HADAL_RETURN_IF_ERROR(CheckEnded(arguments));
  std::vector<std::string> command = absl::StrSplit(arguments.submit, ' ', absl::SkipEmpty());
  command.insert(command.begin() + 1, absl::StrCat("--array=", absl::StrJoin(lines, ",")));
  command.push_back(arguments.layouts);
  command.insert(command.end(), arguments.config.files.begin(), arguments.config.files.end());
  for (const std::string& text : arguments.config.overrides) command.insert(command.end(), {"--set", text});
  if (arguments.accept_changes) command.push_back("--accept-changes");
  setenv("HADAL_SWEEP", arguments.out.c_str(), /*overwrite=*/1);  // where sweep.sbatch puts its runs
  std::cout << absl::StrJoin(command, " ") << std::endl;
  HADAL_ASSIGN_OR_RETURN(const CommandOutput submission, RunToEnd(command, SubmissionPath(arguments)));
  std::cout << submission.text;
  if (submission.exit_code != 0) {
    HADAL_RETURN_IF_ERROR(RemoveTree(SubmissionPath(arguments)));
    return absl::InternalError(absl::StrCat("the submission ended with code ", submission.exit_code));
  }
  std::cout << "When the jobs have ended, the same command with --report-only writes the report." << std::endl;
  return kExitDone;
}

absl::StatusOr<int> Sweep(const SweepArguments& arguments) {
  HADAL_ASSIGN_OR_RETURN(const std::string text, ReadFile(arguments.layouts, kMostListBytes));
  HADAL_ASSIGN_OR_RETURN(const std::vector<Layout> layouts, ParseLayouts(text, arguments.layouts));
  HADAL_ASSIGN_OR_RETURN(const ComparisonGrid grid, MakeGrid(arguments, layouts));
  HADAL_RETURN_IF_ERROR(CheckScalingFiles(arguments.out));
  if (!absl::StripAsciiWhitespace(arguments.submit).empty()) return Submit(arguments, grid, layouts);
  if (arguments.report_only || PathExists(SubmissionPath(arguments))) return ReportOnly(arguments, grid);
  const ComparisonOptions options{.out = arguments.out,
                                  .program = ThisProgram(),
                                  .accept_changes = arguments.accept_changes,
                                  .judged = false,
                                  .stopped = StopSignalled};
  HADAL_ASSIGN_OR_RETURN(const ComparisonOutcome outcome, RunComparison(grid, options, std::cout));
  HADAL_RETURN_IF_ERROR(WriteScaling(arguments, grid).status());
  if (outcome.stopped) return kExitRequeue;
  return outcome.failed > 0 || outcome.changed > 0 ? kExitError : kExitDone;
}

}  // namespace

void AddSweepCommand(Command app, int& exit_code) {
  Command command = app.AddCommand("sweep", "Train one config on a list of layouts and report how it scales");
  auto arguments = std::make_shared<SweepArguments>();
  command.AddOption("LAYOUTS", arguments->layouts, "List of layouts, one per line: NAME RANKS [--set FIELD=VALUE]…")
      .Required();
  AddConfigArguments(command, arguments->config);
  command.AddOption("-o,--out", arguments->out, "Directory for runs and report").ShowDefault();
  const CommandOption submit =
      command.AddOption("--submit", arguments->submit,
                        "Submit what is not finished as a job array by this command, the script last: "
                        "\"sbatch --nodes 4 --ntasks 16 launch/slurm/sweep.sbatch\"");
  command.AddFlag("--report-only", arguments->report_only, "Train nothing; write the report of what has run")
      .Excludes(submit);
  AddCostFlags(command, "predictions that the report shows beside the runs", arguments->costs);
  command.AddFlag("--accept-changes", arguments->accept_changes, "Continue runs whose config has changed");
  command.Runs([arguments, &exit_code] {
    const absl::StatusOr<int> code = Sweep(*arguments);
    if (!code.ok()) PrintToolError("sweep", code.status());
    exit_code = code.ok() ? *code : ExitCodeOf(code.status());
  });
}

}  // namespace hadal
