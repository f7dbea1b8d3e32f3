// `hadal report RUN…`: what runs did and where their time went, in files a person can keep.
//
//   hadal report run                              run/report.html, .json and .md
//   hadal report run --profile here.textproto     beside it what `hadal plan --profile` predicts for the run;
//                                                 --machine: for such a machine
//   hadal report run1 run2 run4 --out scaling     scaling.html, .json and .md: the runs side by side, scaling
//                                                 efficiency, its losses
// The HTML is one file: inline SVG, no script, no network. The JSON has every number of the page, the Markdown the
// tables. Exit codes: 0, 1 a run cannot be read, 2 usage.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/plan/cost_files.h"
#include "tools/report/run_prediction.h"
#include "tools/report/run_record.h"
#include "tools/report/run_summary.h"
#include "tools/report/scaling.h"

namespace CLI {
class App;
}

namespace hadal {

struct Report {
  std::vector<RunRecord> runs;
  std::vector<RunSummary> summaries;       // [runs]
  std::vector<RunPrediction> predictions;  // [runs] where there are costs, else empty
  std::string no_predictions;              // why costs that a run has kept predict nothing; else empty
  std::optional<Scaling> scaling;          // several comparable runs
  std::string no_scaling;                  // why several runs have none; else empty
};

// `costs`: what all runs are held against; where none are given, what the first run that has kept its costs
// (cost_files.h) was started with.
// Errors: those of ReadRun and Summarize, and where costs are given PredictRun's.
absl::StatusOr<Report> MakeReport(const std::vector<std::string>& directories, const CostFiles& costs = {});

// Under the table of predictions.
inline constexpr const char* kPredictionNote =
    "MFU: operations of the model, without recomputation, over what matrix products alone reach; share of roofline: "
    "what the predicted costs of all sublayers, spread evenly over the ranks, take of the measured step.";

// In words, what "forward", "recompute", "backward" and "compute slower than profiled" are in this report.
std::string DescribeCompute(const Report& report);

std::string ReportToHtml(const Report& report);
std::string ReportToJson(const Report& report);
std::string ReportToMarkdown(const Report& report);

// Writes the runs' report to STEM.html, STEM.json and STEM.md, where `path` is STEM or one of them; returns their
// paths, a line each.
// Errors: MakeReport's, the file system's.
absl::StatusOr<std::string> WriteReport(const std::vector<std::string>& directories, const std::string& path,
                                        const CostFiles& costs = {});

// Registers the subcommand.
void AddReportCommand(CLI::App& app, int& exit_code);

}  // namespace hadal
