// `hadal curve RUN…` plots a metric of one or several runs, as text or, with --svg, as a picture.
//
//   hadal curve RUN [RUN …] [--metric NAME] [--label NAME …] [--width N] [--height N]
//   hadal curve RUN [RUN …] [--metric NAME] [--label NAME …] --svg FILE [--depth SERIES] [--dark]
// The Python package pyhadal (tools/python/pyhadal/curve.py) reads and draws; the text needs the standard library
// alone. RUN is a run directory or a metrics.jsonl. Metrics: any number in a step's line (loss, nll, perplexity,
// learning_rate, gradient_norm, tokens_per_second, …), or valid/nll, valid/perplexity, valid/bleu for a validation's.
// SERIES (runtime/depth_metrics.h) adds a heat map of each run's sublayers over the recorded steps, all on one scale.
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/depth_metrics.h"
#include "tools/commands.h"
#include "tools/output/work_progress.h"
#include "tools/python_child.h"

namespace hadal {
namespace {

struct CurveArguments {
  std::vector<std::string> runs, labels;
  std::string metric = "loss";
  int width = 60, height = 12;
  std::string svg, depth;
  bool dark = false;
};

std::vector<std::string> WordsOf(const CurveArguments& arguments) {
  std::vector<std::string> words = {absl::StrCat("--metric=", arguments.metric)};
  for (const std::string& label : arguments.labels) words.push_back(absl::StrCat("--label=", label));
  if (arguments.svg.empty()) {
    const TerminalStyle style = DetectTerminal(STDOUT_FILENO);
    words.push_back(absl::StrCat("--width=", arguments.width));
    words.push_back(absl::StrCat("--height=", arguments.height));
    if (!style.unicode) words.emplace_back("--ascii");
    if (style.color) words.emplace_back("--color");
  } else {
    words.push_back(absl::StrCat("--svg=", arguments.svg));
  }
  if (!arguments.depth.empty()) words.push_back(absl::StrCat("--depth=", arguments.depth));
  if (arguments.dark) words.emplace_back("--dark");
  words.emplace_back("--");
  words.insert(words.end(), arguments.runs.begin(), arguments.runs.end());
  return words;
}

}  // namespace

void AddCurveCommand(Command app, int& exit_code) {
  Command command = app.AddCommand("curve", "Draw a metric of one or more runs, as text or as a picture");
  auto arguments = std::make_shared<CurveArguments>();
  command.AddOption("runs", arguments->runs, "Run directories, or metrics.jsonl files").Required();
  command
      .AddOption("-m,--metric", arguments->metric,
                 "Field of event step (loss, nll, learning_rate …), or valid/nll, valid/bleu …")
      .ShowDefault();
  command.AddOption("-l,--label", arguments->labels, "Name of each run in the legend");
  command.AddOption("--width", arguments->width, "Columns").InRange(8, 1000).ShowDefault();
  command.AddOption("--height", arguments->height, "Rows").InRange(3, 1000).ShowDefault();
  const CommandOption svg = command.AddOption("--svg", arguments->svg, "Write a picture to this file instead");
  std::vector<std::string> depths;
  for (const DepthSeriesInfo& series : kDepthSeries) depths.push_back(series.name);
  command.AddOption("--depth", arguments->depth, "Above it each run's sublayers over the steps, as a heat map")
      .OneOf(depths)
      .Needs(svg);
  command.AddFlag("--dark", arguments->dark, "Colours for a dark page").Needs(svg);
  command.Runs([arguments, &exit_code] { exit_code = RunPyhadal("curve", WordsOf(*arguments)); });
}

}  // namespace hadal
