// `hadal summary RUN…` reports on one or several runs: diagnoses, where the time went, memory, scaling efficiency and
// its causes, config.
//
//   hadal summary run                            as text; a run that ends writes it to run/report.txt
//   hadal summary run --profile here.textproto   also what `hadal plan --profile` predicts for the run; --machine: for
//                                                a described machine
//   hadal summary run1 run2 run4                 compares the runs; with scaling efficiency and its losses if they
//                                                differ in their layout only
//     --format json|csv                          all numbers, for programs such as pyhadal, which draws them
// Exit codes: 0, 1 a run cannot be read, 2 usage.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/output/run_record.h"
#include "tools/plan/cost_files.h"
#include "tools/report/run_summary.h"
#include "tools/report/scaling.h"

namespace hadal {

struct Summary {
  std::vector<RunRecord> runs;
  std::vector<RunSummary> summaries;       // [runs]
  std::vector<RunPrediction> predictions;  // [runs] if costs are given, else empty
  std::string no_predictions;              // why the stored costs of a run give no prediction; else empty
  std::optional<Scaling> scaling;          // of several comparable runs
  std::string no_scaling;                  // why several runs have no scaling; else empty
};

// `costs`: for the predictions of all runs. If none are given, uses those of the first run that has stored its costs
// (cost_files.h).
// Errors: those of ReadRun and Summarize; those of PredictRun if costs are given.
absl::StatusOr<Summary> MakeSummary(const std::vector<std::string>& directories, const CostFiles& costs = {});

struct SummaryCell {
  std::string text;
  std::optional<double> value;  // the number that `text` shows, in the unit of its column
};

struct SummaryTable {
  std::string name;  // "runs", "parts", "stages", …
  std::string run;   // of stages and memory: the run's name
  std::string title;
  std::vector<std::string> columns;  // with their units
  std::vector<std::vector<SummaryCell>> rows;
  std::string note;
};

// All tables that the runs have data for: runs, parts, stages and memory of each run, predictions, scaling, causes,
// config.
std::vector<SummaryTable> MakeTables(const Summary& summary);

std::string SummaryToText(const Summary& summary);
// All numbers of the runs, MakeTables, and the paths of traces.
std::string SummaryToJson(const Summary& summary);
// A line for each cell: table, row, column, value.
std::string SummaryToCsv(const Summary& summary);

// Writes a run's summary to its report.txt. Errors: those of MakeSummary; file errors.
absl::Status WriteRunReport(const std::string& run_directory);

}  // namespace hadal
