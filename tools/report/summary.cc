#include "tools/report/summary.h"

#include <unistd.h>

#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"
#include "tools/commands.h"
#include "tools/python_child.h"
#include "tools/tool_exit_code.h"

namespace hadal {
namespace {

struct SummaryArguments {
  std::vector<std::string> runs;
  std::string format = "text";
  std::string output;  // of a report
  CostFiles costs;
};

// The stored costs of the first run that has any.
CostFiles KeptCosts(const std::vector<std::string>& directories) {
  for (const std::string& directory : directories) {
    CostFiles kept = StoredCosts(directory);
    if (!kept.empty()) return kept;
  }
  return {};
}

// One prediction per run, which splits the run's compute.
absl::Status Predict(const CostFiles& costs, Summary& summary) {
  std::vector<RunPrediction> predictions;
  for (size_t i = 0; i < summary.runs.size(); ++i) {
    HADAL_ASSIGN_OR_RETURN(RunPrediction prediction, PredictRun(summary.runs[i], summary.summaries[i], costs));
    predictions.push_back(std::move(prediction));
  }
  for (size_t i = 0; i < predictions.size(); ++i) CompareWithCosts(predictions[i].compute, summary.summaries[i]);
  summary.predictions = std::move(predictions);
  return absl::OkStatus();
}

absl::StatusOr<std::string> FormatSummary(const SummaryArguments& arguments) {
  HADAL_ASSIGN_OR_RETURN(const Summary summary, MakeSummary(arguments.runs, arguments.costs));
  if (arguments.format == "json") return SummaryToJson(summary);
  return arguments.format == "csv" ? SummaryToCsv(summary) : SummaryToText(summary);
}

int DrawReport(const std::vector<std::string>& runs, const std::string& stem, const CostFiles& costs) {
  std::vector<std::string> words = {absl::StrCat("--out=", stem)};
  if (!costs.profile.empty()) words.push_back(absl::StrCat("--profile=", costs.profile));
  if (!costs.machine.empty()) words.push_back(absl::StrCat("--machine=", costs.machine));
  words.emplace_back("--");
  words.insert(words.end(), runs.begin(), runs.end());
  return RunPyhadal("report", std::move(words));
}

}  // namespace

absl::StatusOr<Summary> MakeSummary(const std::vector<std::string>& directories, const CostFiles& costs) {
  Summary summary;
  for (const std::string& directory : directories) {
    HADAL_ASSIGN_OR_RETURN(RunRecord run, ReadRun(directory));
    HADAL_ASSIGN_OR_RETURN(RunSummary times, Summarize(run));
    summary.runs.push_back(std::move(run));
    summary.summaries.push_back(std::move(times));
  }
  std::map<std::string, int> uses;
  for (const RunRecord& run : summary.runs) ++uses[run.name];
  for (RunRecord& run : summary.runs) {
    if (uses[run.name] > 1) run.name = run.directory;
  }
  if (!costs.empty()) {
    HADAL_RETURN_IF_ERROR(Predict(costs, summary));
  } else if (const CostFiles kept = KeptCosts(directories); !kept.empty()) {
    summary.no_predictions = std::string(Predict(kept, summary).message());
  }
  if (summary.runs.size() < 2) return summary;
  absl::StatusOr<Scaling> scaling = CompareRuns(summary.runs, summary.summaries);
  if (scaling.ok()) {
    summary.scaling = *std::move(scaling);
  } else {
    summary.no_scaling = std::string(scaling.status().message());
  }
  return summary;
}

absl::Status WriteRunReport(const std::string& run_directory) {
  HADAL_ASSIGN_OR_RETURN(const Summary summary, MakeSummary({run_directory}));
  const std::string path = JoinPath(run_directory, absl::StrCat(kReportStem, ".txt"));
  return ReplaceFile(path, SummaryToText(summary), absl::StrCat(getpid()));
}

void AddSummaryCommand(Command app, int& exit_code) {
  Command command =
      app.AddCommand("summary", "Print where the time of runs went, their diagnoses, memory and scaling efficiency");
  auto arguments = std::make_shared<SummaryArguments>();
  command.AddOption("runs", arguments->runs, "Run directories").Required();
  command.AddOption("--format", arguments->format, "Text, json (every number) or csv (a line for each cell of a table)")
      .OneOf({"text", "json", "csv"})
      .ShowDefault();
  AddCostFlags(command, "its predictions are shown next to the measurements", arguments->costs);
  command.Runs([arguments, &exit_code] { exit_code = EndTool("summary", FormatSummary(*arguments)); });
}

// `hadal report RUN…` draws runs as one HTML page: diagnoses, curves, translations, depth, times, memory, scaling.
//
//   hadal report run                              run/report.html, .json and .md
//   hadal report run --profile here.textproto     with predictions, as `hadal summary`; --machine likewise
//   hadal report run1 run2 run4 --out scaling     scaling.html, .json and .md: compares the runs
// pyhadal (tools/python/pyhadal/report.py) draws the numbers of `hadal summary --format json`. The page is one file
// without scripts; the JSON is the summary's, the Markdown has its tables.
// Exit codes: 0, 1 a file cannot be written, 2 usage, or a Python package is missing.
void AddReportCommand(Command app, int& exit_code) {
  Command command = app.AddCommand("report", "Draw runs, their time and their scaling as one HTML file");
  auto arguments = std::make_shared<SummaryArguments>();
  command.AddOption("runs", arguments->runs, "Run directories").Required();
  command.AddOption("-o,--out", arguments->output,
                    "Path of the .html, .json and .md (default: report in the first run)");
  AddCostFlags(command, "its predictions are shown next to the measurements", arguments->costs);
  command.Runs([arguments, &exit_code] {
    for (const std::string& run : arguments->runs) {  // before Python and its packages are checked
      const absl::Status opened = OpenFile(JoinPath(run, kMetricsName)).status();
      if (!opened.ok()) {
        exit_code = EndTool("report", opened);
        return;
      }
    }
    const std::string stem =
        arguments->output.empty() ? JoinPath(arguments->runs.front(), kReportStem) : arguments->output;
    exit_code = DrawReport(arguments->runs, stem, arguments->costs);
  });
}

}  // namespace hadal
