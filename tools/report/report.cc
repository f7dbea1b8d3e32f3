#include "tools/report/report.h"

#include <unistd.h>

#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"
#include "tools/output/human_units.h"
#include "tools/tool_exit_code.h"

namespace hadal {
namespace {

struct Arguments {
  std::vector<std::string> runs;
  std::string output;
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
absl::Status Predict(const CostFiles& costs, Report& report) {
  std::vector<RunPrediction> predictions;
  for (size_t i = 0; i < report.runs.size(); ++i) {
    HADAL_ASSIGN_OR_RETURN(RunPrediction prediction, PredictRun(report.runs[i], report.summaries[i], costs));
    predictions.push_back(std::move(prediction));
  }
  for (size_t i = 0; i < predictions.size(); ++i) CompareWithCosts(predictions[i].compute, report.summaries[i]);
  report.predictions = std::move(predictions);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Report> MakeReport(const std::vector<std::string>& directories, const CostFiles& costs) {
  Report report;
  for (const std::string& directory : directories) {
    HADAL_ASSIGN_OR_RETURN(RunRecord run, ReadRun(directory));
    HADAL_ASSIGN_OR_RETURN(RunSummary summary, Summarize(run));
    report.runs.push_back(std::move(run));
    report.summaries.push_back(std::move(summary));
  }
  std::map<std::string, int> uses;
  for (const RunRecord& run : report.runs) ++uses[run.name];
  for (RunRecord& run : report.runs) {
    if (uses[run.name] > 1) run.name = run.directory;
  }
  if (!costs.empty()) {
    HADAL_RETURN_IF_ERROR(Predict(costs, report));
  } else if (const CostFiles kept = KeptCosts(directories); !kept.empty()) {
    report.no_predictions = std::string(Predict(kept, report).message());
  }
  if (report.runs.size() < 2) return report;
  absl::StatusOr<Scaling> scaling = CompareRuns(report.runs, report.summaries);
  if (scaling.ok()) {
    report.scaling = *std::move(scaling);
  } else {
    report.no_scaling = std::string(scaling.status().message());
  }
  return report;
}

std::vector<std::vector<std::string>> PredictionTable(const Report& report) {
  if (report.predictions.empty()) return {};
  const auto milliseconds = [](double seconds) { return absl::StrFormat("%.1f ms", 1e3 * seconds); };
  const auto percent = [](double share) { return absl::StrFormat("%.1f%%", 100 * share); };
  const auto mebibytes = [](int64_t bytes) {
    return bytes > 0 ? absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / (1 << 20)) : std::string("-");
  };
  std::vector<std::vector<std::string>> rows = {
      {"run", "step predicted", "measured", "error", "memory predicted", "measured", "MFU", "share of roofline"}};
  for (size_t i = 0; i < report.runs.size(); ++i) {
    const RunPrediction& prediction = report.predictions[i];
    rows.push_back({report.runs[i].name, milliseconds(prediction.layout.step_seconds),
                    milliseconds(prediction.measured_seconds), absl::StrFormat("%+.1f%%", 100 * prediction.StepError()),
                    mebibytes(prediction.predicted_bytes), mebibytes(prediction.measured_bytes),
                    percent(prediction.utilisation), percent(prediction.roofline_share)});
  }
  return rows;
}

std::string BestNllText(const RunRecord& run) {
  const ValidationRecord* best = nullptr;
  for (const ValidationRecord& validation : run.validations) {
    if (std::isfinite(validation.nll) && (best == nullptr || validation.nll < best->nll)) best = &validation;
  }
  return best == nullptr ? "-" : absl::StrCat(HumanValue(best->nll, 4), " (step ", HumanCount(best->step), ")");
}

std::string LastScoreText(const RunRecord& run) {
  for (auto validation = run.validations.rbegin(); validation != run.validations.rend(); ++validation) {
    if (!validation->wer && !validation->bleu) continue;
    return absl::StrCat(validation->wer ? absl::StrFormat("WER %.1f%%", 100 * *validation->wer)
                                        : absl::StrFormat("BLEU %.1f", *validation->bleu),
                        " (step ", HumanCount(validation->step), ")");
  }
  return "-";
}

std::string DescribeCompute(const Report& report) {
  if (report.predictions.empty()) {
    return "No profile was given (--profile, --machine): forward, recompute and backward are as measured, and their "
           "losses on more cores "
           "are relative to the run on the fewest cores.";
  }
  return absl::StrCat(
      "Forward, recompute and backward are the times of a step at full speed according to the ",
      report.predictions.front().costs,
      "; compute time beyond that, with a core, is \"compute slower than profiled\" (negative: faster).");
}

absl::StatusOr<std::string> WriteReport(const std::vector<std::string>& directories, const std::string& path,
                                        const CostFiles& costs) {
  absl::string_view stem = path;
  for (const char* extension : {".html", ".json", ".md"}) {
    if (absl::ConsumeSuffix(&stem, extension)) break;
  }
  HADAL_ASSIGN_OR_RETURN(const Report report, MakeReport(directories, costs));
  const std::pair<const char*, std::string> files[] = {
      {".html", ReportToHtml(report)}, {".json", ReportToJson(report)}, {".md", ReportToMarkdown(report)}};
  for (const auto& [extension, text] : files) {
    HADAL_RETURN_IF_ERROR(ReplaceFile(absl::StrCat(stem, extension), text, absl::StrCat(getpid())));
  }
  return absl::StrCat(stem, ".html\n", stem, ".json\n", stem, ".md\n");
}

void AddReportCommand(Command app, int& exit_code) {
  Command command = app.AddCommand("report", "Show runs, their time and their scaling as one HTML file");
  auto arguments = std::make_shared<Arguments>();
  command.AddOption("runs", arguments->runs, "Run directories").Required();
  command.AddOption("-o,--out", arguments->output,
                    "Path of the .html, .json and .md (default: report in the first run)");
  AddCostFlags(command, "its predictions are shown next to the measurements", arguments->costs);
  command.Runs([arguments, &exit_code] {
    const std::string stem =
        arguments->output.empty() ? JoinPath(arguments->runs.front(), kReportStem) : arguments->output;
    exit_code = EndTool("report", WriteReport(arguments->runs, stem, arguments->costs));
  });
}

}  // namespace hadal
