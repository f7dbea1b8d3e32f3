// `hadal curve RUN…`: the curve of a metric, of one run or of several beside one another, as text.
//
//   hadal curve RUN [RUN …] [--metric nll] [--label NAME …] [--width 60] [--height 12]
// RUN is a run directory or a metrics.jsonl. Metrics: any number of a step's line (loss, nll, perplexity,
// learning_rate, gradient_norm, tokens_per_second, …) or, as valid/nll, valid/perplexity, valid/bleu, of a
// validation's.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/report/text_plot.h"

namespace CLI {
class App;
}

namespace hadal {

// The points (step, value) of `metric` in a run's metrics.jsonl; a null becomes NaN. A last line cut short is left out.
// Errors: NotFound (no such file), InvalidArgument (a line that is not JSON; no line holds the metric: the message
// lists those that exist).
absl::StatusOr<Curve> ReadCurve(const std::string& run, const std::string& metric, std::string label);

struct CurveCommandOptions {
  std::vector<std::string> runs;
  std::vector<std::string> labels;  // one a run; empty: the directories' names
  std::string metric = "loss";
  TextPlotOptions plot;
};

// Reads and plots.
absl::Status RunCurve(const CurveCommandOptions& options, std::ostream& out);

// Registers the subcommand; running it stores 0, 1 (error) or 2 (bad usage) in `exit_code`.
void AddCurveCommand(CLI::App& app, int& exit_code);

}  // namespace hadal
