// `hadal compare GRID.textproto [--out DIR] [--run N…] [--seeds N…] [--set a.b=c]… [--ranks R]
//                [--accept-changes] [--list] [--test-source FILE --test-reference FILE] [--report-only]`
//
// Runs every cell of a grid (configs/compare.proto) as `hadal train … --run-dir OUT/runs/CELL`, one after the other,
// cheapest first, and prints how each ended. A later call continues: it skips finished cells, resumes interrupted ones,
// and leaves a cell alone whose config has changed, naming the fields. At the end, or at any time with --report-only,
// it writes OUT/grid.json (tools/compare/comparison_result.h), from which `pyhadal compare` (tools/python) makes
// OUT/comparison.{html,md,json}. SIGINT, SIGTERM and SIGUSR1 are passed on to the running cell, which saves; the
// command then exits with 85.
// Exit codes: 0 every cell has run or the budget is used up, 1 a cell failed or has another config, 2 bad grid or
// usage, or a Python package is missing, 85 stopped.
#include "tools/commands.h"

#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launch/exit_code.h"
#include "launch/signals.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"
#include "tools/compare/comparison_grid.h"
#include "tools/compare/comparison_result.h"
#include "tools/compare/comparison_runner.h"
#include "tools/corpus/parallel_text.h"
#include "tools/output/staged_output.h"
#include "tools/python_child.h"
#include "tools/tool_exit_code.h"

namespace hadal {
namespace {

struct CompareArguments {
  std::string grid;
  std::vector<std::string> overrides;
  std::vector<uint64_t> seeds;
  ComparisonOptions options{.out = "comparison", .ranks = 0};  // 0 ranks: the grid's
  std::string test_reference;
  bool list = false, report_only = false;
};

// What a mistake in would be seen only behind hours of training: the text to translate, and that its translation by
// people has as many lines.
absl::Status CheckTestText(const std::string& source, const std::string& reference) {
  if (source.empty() && reference.empty()) return absl::OkStatus();
  const TextPair text =
      source.empty() || reference.empty() ? TextPair{"", absl::StrCat(source, reference)} : TextPair{source, reference};
  HADAL_ASSIGN_OR_RETURN(ParallelReader reader, ParallelReader::Open(text));
  ParallelLine line;
  while (true) {
    HADAL_ASSIGN_OR_RETURN(const bool more, reader.Next(line));
    if (!more) return absl::OkStatus();
    if (!line.invalid.empty()) return absl::InvalidArgumentError(line.invalid);
  }
}

// Records what the runs have come to, and has the pages written. Returns the exit code.
absl::StatusOr<int> Report(const ComparisonGrid& grid, const CompareArguments& arguments) {
  const std::string& out = arguments.options.out;
  HADAL_RETURN_IF_ERROR(WriteComparisonRecord(grid, out));
  std::vector<std::string> words = {out};
  if (!arguments.test_reference.empty()) words.insert(words.end(), {"--test-reference", arguments.test_reference});
  std::cout << std::flush;
  const int code = RunPyhadal("compare", words);
  if (code != kExitDone) {
    std::cerr << "The runs are there: `hadal summary " << out << "/runs/*` prints their numbers; the same command with "
              << "--report-only writes the report." << std::endl;
  }
  return code;
}

// The report's files may be replaced where the record is a comparison's.
absl::Status CheckComparisonFiles(const std::string& out) {
  std::vector<std::string> paths;
  for (const char* name :
       {kComparisonRecordName, "comparison.html", "comparison.md", "comparison.json", kComparisonTables}) {
    paths.push_back(JoinPath(out, name));
  }
  return CheckOutputs(paths, {.inputs = {}, .is_own = [](std::string_view record) {
                                return record.find("\"trains_below_unigram\":") != std::string_view::npos;
                              }});
}

absl::StatusOr<int> Compare(CompareArguments arguments) {
  HADAL_ASSIGN_OR_RETURN(const ComparisonGrid grid, LoadGrid(arguments.grid, arguments.overrides, arguments.seeds));
  ComparisonOptions& options = arguments.options;
  if (options.ranks == 0) options.ranks = grid.settings.ranks();
  if (arguments.list) {
    HADAL_RETURN_IF_ERROR(ListComparison(grid, options, std::cout));
    return kExitDone;
  }
  HADAL_RETURN_IF_ERROR(CheckComparisonFiles(options.out));
  if (arguments.report_only) return Report(grid, arguments);
  if (const int code = CheckPyhadal("compare"); code != kExitDone) return code;
  HADAL_RETURN_IF_ERROR(CheckTestText(options.test_source, arguments.test_reference));
  options.program = ThisProgram();
  options.stopped = StopSignalled;
  HADAL_ASSIGN_OR_RETURN(const ComparisonOutcome outcome, RunComparison(grid, options, std::cout));
  std::cout << outcome.finished << " of " << outcome.chosen << " runs finished";
  if (outcome.failed > 0) std::cout << ", " << outcome.failed << " failed";
  if (outcome.changed > 0) std::cout << ", " << outcome.changed << " with another config left alone";
  if (outcome.waiting > 0) std::cout << ", " << outcome.waiting << " to go on with: start the same command again";
  std::cout << std::endl;
  HADAL_ASSIGN_OR_RETURN(const int report, Report(grid, arguments));
  if (outcome.stopped) return kExitRequeue;
  return outcome.failed > 0 || outcome.changed > 0 ? kExitError : report;
}

}  // namespace

void AddCompareCommand(Command app, int& exit_code) {
  Command command = app.AddCommand("compare", "Run a grid of configs within a budget and compare the runs");
  auto arguments = std::make_shared<CompareArguments>();
  command.AddOption("GRID", arguments->grid, "The grid: base configs, axes, budget (configs/compare.proto)").Required();
  command.AddOption("-o,--out", arguments->options.out, "Directory for runs and report").ShowDefault();
  command.AddOption("--run", arguments->options.chosen, "Only the runs of these numbers, as --list prints them")
      .InRange(1, 1 << 30);
  command
      .AddOption("--set", arguments->overrides,
                 "Override one field in every run: --set data.train=data/train (repeatable)")
      .ValueName("FIELD=VALUE")
      .OneValueEach();
  command.AddOption("--seeds", arguments->seeds, "Repeat every run with each of these seeds: one more axis, \"seed\"");
  command.AddOption("--ranks", arguments->options.ranks, "Ranks of each run (default: the grid's)").InRange(1, 65536);
  command.AddFlag("--accept-changes", arguments->options.accept_changes, "Continue runs whose config has changed");
  command.AddOption("--test-source", arguments->options.test_source,
                    "File that every finished run translates, for BLEU");
  command.AddOption("--test-reference", arguments->test_reference, "Its reference translation");
  command.AddFlag("--report-only", arguments->report_only, "Run nothing; write the report of existing runs");
  command.AddFlag("--list", arguments->list, "Print the runs, their shares of the work and their states; run nothing");
  command.Runs([arguments, &exit_code] {
    const absl::StatusOr<int> code = Compare(*arguments);
    if (!code.ok()) PrintToolError("compare", code.status());
    exit_code = code.ok() ? *code : ExitCodeOf(code.status());
  });
}

}  // namespace hadal
