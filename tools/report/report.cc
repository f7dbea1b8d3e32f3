#include "tools/report/report.h"

#include <unistd.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"
#include "tools/python_child.h"
#include "tools/report/summary.h"
#include "tools/tool_exit_code.h"

namespace hadal {
namespace {

struct ReportArguments {
  std::vector<std::string> runs;
  std::string output;
  CostFiles costs;
};

int DrawReport(const std::vector<std::string>& runs, const std::string& stem, const CostFiles& costs) {
  std::vector<std::string> words = {absl::StrCat("--out=", stem)};
  if (!costs.profile.empty()) words.push_back(absl::StrCat("--profile=", costs.profile));
  if (!costs.machine.empty()) words.push_back(absl::StrCat("--machine=", costs.machine));
  words.emplace_back("--");
  words.insert(words.end(), runs.begin(), runs.end());
  return RunPyhadal("report", std::move(words));
}

}  // namespace

absl::StatusOr<std::string> WriteReport(const std::vector<std::string>& directories, const std::string& stem,
                                        const CostFiles& costs) {
  HADAL_ASSIGN_OR_RETURN(const Summary summary, MakeSummary(directories, costs));
  const std::string path = absl::StrCat(stem, ".txt");
  HADAL_RETURN_IF_ERROR(ReplaceFile(path, SummaryToText(summary), absl::StrCat(getpid())));
  DrawReport(directories, stem, costs);  // prints its own paths, or what is missing
  return absl::StrCat(path, "\n");
}

void AddReportCommand(Command app, int& exit_code) {
  Command command = app.AddCommand("report", "Draw runs, their time and their scaling as one HTML file");
  auto arguments = std::make_shared<ReportArguments>();
  command.AddOption("runs", arguments->runs, "Run directories").Required();
  command.AddOption("-o,--out", arguments->output,
                    "Path of the .html, .json and .md (default: report in the first run)");
  AddCostFlags(command, "its predictions are shown next to the measurements", arguments->costs);
  command.Runs([arguments, &exit_code] {
    for (const std::string& run : arguments->runs) {  // before Python and its packages are asked for
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
