// `hadal curve RUN…` plots a metric of one or several runs, as text or, with --svg, as a picture (drawn by pyhadal).
//
//   hadal curve RUN [RUN …] [--metric NAME] [--label NAME …] [--width N] [--height N]
//   hadal curve RUN [RUN …] [--metric NAME] [--label NAME …] --svg FILE [--depth SERIES] [--dark]
// RUN is a run directory or a metrics.jsonl. Metrics: any number in a step's line (loss, nll, perplexity,
// learning_rate, gradient_norm, tokens_per_second, …), or valid/nll, valid/perplexity, valid/bleu for a validation's.
// SERIES (runtime/depth_metrics.h) adds a heat map of each run's sublayers over the recorded steps, all on one scale.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/command_line.h"
#include "tools/drawing/text_plot.h"

namespace hadal {

// Reads the points (step, value) of `metric` from a run's metrics.jsonl; null is NaN. Ignores a truncated last line.
// Errors: NotFound (no such file), InvalidArgument (a line is not JSON; or no line has the metric: the message lists
// those that exist).
absl::StatusOr<Curve> ReadCurve(const std::string& run, const std::string& metric, std::string label);

struct CurveCommandOptions {
  std::vector<std::string> runs;
  std::vector<std::string> labels;  // one per run; empty: the directories' names
  std::string metric = "loss";
  // Of a picture, which the command has pyhadal draw; RunCurve reads none of these three.
  std::string svg;    // its file; empty: a plot as text
  std::string depth;  // DepthSeriesInfo::name; empty: no heat maps
  bool dark = false;
  TextPlotOptions plot;
};

// Reads the curves and prints the plot as text. Errors: those of ReadCurve.
absl::Status RunCurve(const CurveCommandOptions& options, std::ostream& out);

// Registers the subcommand; its callback stores 0, 1 (error) or 2 (bad usage) in `exit_code`.
void AddCurveCommand(Command app, int& exit_code);

}  // namespace hadal
