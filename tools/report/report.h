// `hadal report RUN…` writes a report about one or several runs: losses, BLEU, translations, depth instruments, times,
// memory, scaling, config.
//
//   hadal report run                              run/report.html, .json and .md
//   hadal report run --profile here.textproto     also what `hadal plan --profile` predicts for the run; --machine: for
//                                                 a described machine
//   hadal report run1 run2 run4 --out scaling     scaling.html, .json and .md: compares the runs; scaling efficiency
//                                                 and its losses if they differ in their layout only
// The HTML is one self-contained file: inline SVG, no script. The JSON has every number of the page, the Markdown the
// tables. Exit codes: 0, 1 a run cannot be read, 2 usage.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/command_line.h"
#include "tools/output/run_record.h"
#include "tools/plan/cost_files.h"
#include "tools/report/run_prediction.h"
#include "tools/report/run_summary.h"
#include "tools/report/scaling.h"

namespace hadal {

struct Report {
  std::vector<RunRecord> runs;
  std::vector<RunSummary> summaries;       // [runs]
  std::vector<RunPrediction> predictions;  // [runs] if costs are given, else empty
  std::string no_predictions;              // why the stored costs of a run give no prediction; else empty
  std::optional<Scaling> scaling;          // of several comparable runs
  std::string no_scaling;                  // why several runs have no scaling; else empty
};

// `costs`: for the predictions of all runs. If none are given, uses those of the first run that has stored its costs
// (cost_files.h).
// Errors: those of ReadRun and Summarize; PredictRun's if costs are given.
absl::StatusOr<Report> MakeReport(const std::vector<std::string>& directories, const CostFiles& costs = {});

// The note below the table of predictions.
inline constexpr const char* kPredictionNote =
    "MFU: operations of the model, without recomputation, over what matrix products alone reach; share of roofline: "
    "what the predicted costs of all sublayers, spread evenly over the ranks, take of the measured step.";

// The table of predicted and measured times and memory: a row for each run, the first row the columns' names. Empty
// without predictions.
std::vector<std::vector<std::string>> PredictionTable(const Report& report);

// "4.117 (step 200)", "BLEU 28.9 (step 200)", of speech "WER 10.7% (step 200)"; "-" without validations or scores.
std::string BestNllText(const RunRecord& run);
std::string LastScoreText(const RunRecord& run);

// Explains "forward", "recompute", "backward" and "compute slower than profiled" as this report uses them.
std::string DescribeCompute(const Report& report);

std::string ReportToHtml(const Report& report);
std::string ReportToJson(const Report& report);
std::string ReportToMarkdown(const Report& report);

// Writes the runs' report to STEM.html, STEM.json and STEM.md, where `path` is STEM or one of them. Returns their
// paths, one per line.
// Errors: MakeReport's; file errors.
absl::StatusOr<std::string> WriteReport(const std::vector<std::string>& directories, const std::string& path,
                                        const CostFiles& costs = {});

// Registers the subcommand.
void AddReportCommand(Command app, int& exit_code);

}  // namespace hadal
