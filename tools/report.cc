#include "tools/report.h"

#include <unistd.h>

#include <iostream>
#include <memory>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

struct Arguments {
  std::vector<std::string> runs;
  std::string output, profile;
};

}  // namespace

absl::StatusOr<Report> MakeReport(const std::vector<std::string>& directories, const std::string& profile) {
  Report report;
  for (const std::string& directory : directories) {
    HADAL_ASSIGN_OR_RETURN(RunRecord run, ReadRun(directory));
    HADAL_ASSIGN_OR_RETURN(RunSummary summary, Summarize(run));
    if (!profile.empty()) {
      HADAL_ASSIGN_OR_RETURN(RunPrediction prediction, PredictRun(run, summary, profile));
      report.predictions.push_back(std::move(prediction));
    }
    report.runs.push_back(std::move(run));
    report.summaries.push_back(std::move(summary));
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

absl::StatusOr<std::string> WriteReport(const std::vector<std::string>& directories, const std::string& stem,
                                        const std::string& profile) {
  HADAL_ASSIGN_OR_RETURN(const Report report, MakeReport(directories, profile));
  const std::pair<const char*, std::string> files[] = {
      {".html", ReportToHtml(report)}, {".json", ReportToJson(report)}, {".md", ReportToMarkdown(report)}};
  for (const auto& [extension, text] : files) {
    HADAL_RETURN_IF_ERROR(ReplaceFile(absl::StrCat(stem, extension), text, absl::StrCat(getpid())));
  }
  return absl::StrCat(stem, ".html\n", stem, ".json\n", stem, ".md\n");
}

void AddReportCommand(CLI::App& app, int& exit_code) {
  CLI::App& command = *app.add_subcommand("report", "Show runs, their time and their scaling as one HTML file");
  auto arguments = std::make_shared<Arguments>();
  command.add_option("runs", arguments->runs, "Run directories")->required();
  command.add_option("-o,--output", arguments->output, "Path without extension (default: report in the first run)");
  command.add_option("--profile", arguments->profile,
                     "Show what this `hadal bench profile` predicts beside the measured");
  command.callback([arguments, &exit_code] {
    constexpr int kDone = 0, kRefused = 1;
    const absl::StatusOr<std::string> written = WriteReport(
        arguments->runs, arguments->output.empty() ? JoinPath(arguments->runs.front(), "report") : arguments->output,
        arguments->profile);
    exit_code = written.ok() ? kDone : kRefused;
    if (written.ok()) {
      std::cout << *written << std::flush;
    } else {
      std::cerr << "hadal report: " << written.status().message() << "\n";
    }
  });
}

}  // namespace hadal
