#include "launch/job_report.h"

#include <fcntl.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launch/exit_code.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"

namespace hadal {
namespace {

// Appends a line to the report. Without a supervisor, or if the file cannot be written, does nothing: training does not
// depend on it.
void Report(const std::string& line) {
  const char* const path = std::getenv(kReportVariable);
  if (path == nullptr) return;
  const FileDescriptor file(open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW));
  if (file.valid()) WriteAll(file, absl::StrCat(line, "\n"), path).IgnoreError();
}

class Reporter : public MetricsSink {
 public:
  void OnStart(const RunInfo& run) override {
    std::error_code error;
    const std::string path = std::filesystem::absolute(run.run_directory, error).string();
    if (run.from_copy) Report(absl::StrCat("copied ", run.first_step - 1));
    Report(absl::StrCat("start ", run.first_step - 1, " ", path));
  }
  void OnCheckpoint(const CheckpointMetrics& metrics) override {
    Report(absl::StrCat(metrics.in_memory ? "copied " : "saved ", metrics.step));
  }
};

// -1: there is none, or it has been set aside.
int64_t LatestStep(const std::string& run_directory) {
  const int64_t step = ReadCheckpointPointer(run_directory, CheckpointPointer::kLatest).value_or(-1);
  return step >= 0 && PathExists(CheckpointDirectory(run_directory, step)) ? step : -1;
}

// The last copy in memory of the run's last start; -1: none.
int64_t CopiedStep(const std::string& run_directory) {
  constexpr std::string_view kCopy = R"({"event":"copy","step":)";
  const std::string text = MetricsOfLastStart(run_directory);
  const size_t at = text.rfind(kCopy);
  return at == std::string::npos ? -1 : std::strtoll(text.c_str() + at + kCopy.size(), nullptr, 10);
}

void ParseLine(const std::string& line, JobReport& report) {
  const std::vector<std::string> words = absl::StrSplit(line, absl::MaxSplits(' ', 2));
  int64_t number = 0;
  if (words.size() < 2 || !absl::SimpleAtoi(words[1], &number)) return;
  if (words[0] == "saved") report.saved = std::max(report.saved, number);
  if (words[0] == "copied") report.copied = std::max(report.copied, number);
  if (words[0] == "start" && words.size() == 3) {
    if (report.start < 0) report.start = number;
    report.run_directory = words[2];
    if (number != report.copied) report.saved = std::max(report.saved, number);
    report.ended = report.saved_at_end = false;
    report.failure = 0;
  }
  if (words[0] == "end") {
    report.ended = true;
    report.saved_at_end = report.saved_at_end || number == kExitRequeue;
    const bool failed = number > kExitDone && number < kExitRequeue;
    if (failed && (report.failure == 0 || number < report.failure)) report.failure = static_cast<int>(number);
  }
}

}  // namespace

std::unique_ptr<MetricsSink> MakeJobReport() { return std::make_unique<Reporter>(); }

void ReportEnd(int exit_code) { Report(absl::StrCat("end ", exit_code)); }

JobReport ParseJobReport(const std::string& text) {
  JobReport report;
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  lines.pop_back();  // "", or a line that is not whole
  for (const std::string& line : lines) ParseLine(line, report);
  return report;
}

std::string MetricsOfLastStart(const std::string& run_directory) {
  std::ifstream file(JoinPath(run_directory, kMetricsName), std::ios::binary | std::ios::ate);
  file.seekg(std::max<int64_t>(0, file.tellg() - (int64_t{1} << 26)));
  const std::string text(std::istreambuf_iterator<char>(file), {});
  return text.substr(std::min(text.size(), text.rfind(R"({"event":"run",)")));
}

FurthestStep::FurthestStep(std::string run_directory, bool asked)
    : run_directory_(std::move(run_directory)), asked_(asked), saved_(LatestStep(run_directory_)), step_(saved_) {}

bool FurthestStep::Advance(const JobReport& report) {
  const bool reports = report.start >= 0;
  if (reports && first_ < 0) first_ = step_ = report.start;
  if (reports) run_directory_ = report.run_directory;
  const bool goes_back = asked_ && report.saved >= 0 && report.saved <= first_;  // latest may be of another run
  const int64_t saved = std::max(report.saved, goes_back ? -1 : LatestStep(run_directory_));
  if (saved >= 0) saved_ = saved;
  copied_ = reports ? report.copied : std::max(copied_, CopiedStep(run_directory_));
  if (asked_ && (first_ < 0 || saved_ <= first_)) copied_ = -1;
  const int64_t before = step_;
  step_ = std::max({step_, saved_, copied_});
  return step_ > before;
}

std::string FurthestStep::Describe() const {
  const std::string copy =
      copied_ > saved_ ? absl::StrCat(" (step ", copied_, " if the hosts still have that copy in memory)") : "";
  if (saved_ > 0) return absl::StrCat("step ", saved_, " of ", run_directory_, copy);
  return (saved_ == 0 ? "the beginning" : "its newest checkpoint or the beginning") + copy;
}

}  // namespace hadal
