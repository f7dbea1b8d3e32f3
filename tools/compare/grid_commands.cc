// `hadal compare` and `hadal sweep`: their options. The Python package pyhadal (compare_grid.py, sweep.py in
// tools/python/pyhadal) says what they do, and does it in this process's place.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "tools/commands.h"
#include "tools/config/config_loading.h"
#include "tools/corpus/parallel_text.h"
#include "tools/plan/cost_files.h"
#include "tools/python_child.h"
#include "tools/tool_exit_code.h"

namespace hadal {
namespace {

// Options as words: each "--name=value", so that a value may begin with "-".
class Words {
 public:
  void Add(const std::string& name, const std::string& value) {
    words_.push_back(absl::StrCat("--", name, "=", value));
  }
  template <typename T>
  void AddEach(const std::string& name, const std::vector<T>& values) {
    for (const T& value : values) Add(name, absl::StrCat(value));
  }
  void AddFlag(const std::string& name, bool given) {
    if (given) words_.push_back(absl::StrCat("--", name));
  }
  std::vector<std::string> WithFiles(const std::vector<std::string>& files) && {
    words_.emplace_back("--");
    words_.insert(words_.end(), files.begin(), files.end());
    return std::move(words_);
  }

 private:
  std::vector<std::string> words_;
};

struct CompareArguments {
  std::string grid, out = "comparison", test_source, test_reference;
  std::vector<std::string> overrides;
  std::vector<int> chosen;
  std::vector<uint64_t> seeds;
  int ranks = 0;
  bool accept_changes = false, list = false, report_only = false;
};

// Checks before hours of training: that the text to translate can be read, and that its reference translation has as
// many lines.
absl::Status CheckTestText(const std::string& source, const std::string& reference) {
  if (source.empty() && reference.empty()) return absl::OkStatus();
  if (source.empty() || reference.empty()) {
    return InvalidArgumentError("BLEU needs both --test-source and --test-reference; give both or neither");
  }
  HADAL_ASSIGN_OR_RETURN(ParallelReader reader, ParallelReader::Open({source, reference}));
  ParallelLine line;
  while (true) {
    HADAL_ASSIGN_OR_RETURN(const bool more, reader.Next(line));
    if (!more) return absl::OkStatus();
    if (!line.invalid.empty()) return InvalidArgumentError(line.invalid);
  }
}

int Compare(const CompareArguments& arguments) {
  if (!arguments.list && !arguments.report_only) {
    const absl::Status text = CheckTestText(arguments.test_source, arguments.test_reference);
    if (!text.ok()) return EndTool("compare", text);
  }
  Words words;
  words.Add("out", arguments.out);
  words.AddEach("run", arguments.chosen);
  words.AddEach("set", arguments.overrides);
  words.AddEach("seed", arguments.seeds);
  words.Add("ranks", absl::StrCat(arguments.ranks));
  words.Add("test-source", arguments.test_source);
  words.Add("test-reference", arguments.test_reference);
  words.AddFlag("accept-changes", arguments.accept_changes);
  words.AddFlag("list", arguments.list);
  words.AddFlag("report-only", arguments.report_only);
  return BecomePyhadal("compare", std::move(words).WithFiles({arguments.grid}));
}

struct SweepArguments {
  std::string layouts, out = "sweep", submit;
  ConfigArguments config;
  CostFiles costs;  // for the report
  bool accept_changes = false, report_only = false;
};

int Sweep(const SweepArguments& arguments) {
  Words words;
  words.Add("out", arguments.out);
  words.AddEach("set", arguments.config.overrides);
  words.Add("submit", arguments.submit);
  words.Add("profile", arguments.costs.profile);
  words.Add("machine", arguments.costs.machine);
  words.AddFlag("accept-changes", arguments.accept_changes);
  words.AddFlag("report-only", arguments.report_only);
  std::vector<std::string> files = {arguments.layouts};
  files.insert(files.end(), arguments.config.files.begin(), arguments.config.files.end());
  return BecomePyhadal("sweep", std::move(words).WithFiles(files));
}

}  // namespace

void AddCompareCommand(Command app, int& exit_code) {
  Command command = app.AddCommand("compare", "Run a grid of configs within a budget and compare the runs");
  auto arguments = std::make_shared<CompareArguments>();
  command.AddOption("GRID", arguments->grid, "The grid: base configs, axes, budget (configs/compare.proto)").Required();
  command.AddOption("-o,--out", arguments->out, "Directory for runs and report").ShowDefault();
  command.AddOption("--run", arguments->chosen, "Only the runs of these numbers, as --list prints them")
      .InRange(1, 1 << 30);
  command
      .AddOption("--set FIELD=VALUE", arguments->overrides,
                 "Override one field in every run: --set data.train=data/train (repeatable)")
      .OneValueEach();
  command.AddOption("--seeds", arguments->seeds, "Repeat every run with each of these seeds: one more axis, \"seed\"");
  command.AddOption("--ranks", arguments->ranks, "Ranks of each run (default: the grid's)").InRange(1, 65536);
  command.AddFlag("--accept-changes", arguments->accept_changes, "Continue runs whose config has changed");
  command.AddOption("--test-source", arguments->test_source, "File that every finished run translates, for BLEU");
  command.AddOption("--test-reference", arguments->test_reference, "Its reference translation");
  command.AddFlag("--report-only", arguments->report_only, "Run nothing; write the report of existing runs");
  command.AddFlag("--list", arguments->list, "Print the runs, their shares of the work and their states; run nothing");
  command.Runs([arguments, &exit_code] { exit_code = Compare(*arguments); });
}

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
  command.Runs([arguments, &exit_code] { exit_code = Sweep(*arguments); });
}

}  // namespace hadal
