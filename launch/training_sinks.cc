#include "launch/training_sinks.h"

#include <unistd.h>

#include <iostream>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"
#include "tools/metrics_jsonl.h"
#include "tools/progress.h"
#include "tools/tensorboard.h"
#include "tools/terminal.h"

namespace hadal {

TrainingSinks::TrainingSinks(bool is_main, const TrainOptions& options)
    : is_main_(is_main), run_directory_(options.run_directory) {}

absl::Status TrainingSinks::Open(const std::string& config_text, int64_t first_step) {
  if (!is_main_) return absl::OkStatus();
  HADAL_RETURN_IF_ERROR(MakeDirectories(run_directory_));
  HADAL_RETURN_IF_ERROR(
      ReplaceFile(JoinPath(run_directory_, "config.resolved.textproto"), config_text, absl::StrCat(getpid())));
  HADAL_ASSIGN_OR_RETURN(
      std::unique_ptr<MetricsJsonl> jsonl,
      MetricsJsonl::Open({.path = JoinPath(run_directory_, "metrics.jsonl"), .first_step = first_step}));
  HADAL_ASSIGN_OR_RETURN(std::unique_ptr<TensorBoard> board,
                         TensorBoard::Open({.directory = JoinPath(run_directory_, "tb")}));
  fan_out_.Add(std::move(jsonl));
  fan_out_.Add(std::move(board));
  fan_out_.Add(std::make_unique<Progress>(std::cout, Progress::Options{.style = DetectTerminal(STDOUT_FILENO)}));
  return absl::OkStatus();
}

void TrainingSinks::Warn(std::string_view text) {
  if (is_main_) std::cerr << "warning: " << text << "\n";
}

absl::Status TrainingSinks::Finish(std::string_view reason) {
  fan_out_.OnFinish(reason);
  return fan_out_.Flush();
}

}  // namespace hadal
