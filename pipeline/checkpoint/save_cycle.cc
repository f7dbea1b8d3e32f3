#include "pipeline/checkpoint/save_cycle.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

// What a failed save means for the run: another job owns the directory, or the ranks have lost each other.
bool EndsTheRun(const absl::Status& save) {
  return absl::IsAborted(save) || absl::IsUnavailable(save) || absl::IsDeadlineExceeded(save);
}

}  // namespace

void SaveCycle::Restart(int64_t first_step) {
  last_saved_step_ = first_step;
  since_begin_.Restart();
}

void SaveCycle::Start(const TrainingProgress& progress, bool is_best) {
  checkpoints_.Begin(progress, is_best);
  step_ = progress.step;
  interval_seconds_ = since_begin_.Seconds();
  since_begin_.Restart();
}

absl::Status SaveCycle::Begin(const TrainingProgress& progress, bool is_best) {
  HADAL_RETURN_IF_ERROR(Finish(progress.step));
  Start(progress, is_best);
  return absl::OkStatus();
}

absl::Status SaveCycle::Poll(int64_t step) {
  if (!checkpoints_.saving()) return absl::OkStatus();
  const TraceScope scope(&trace_, {.kind = TraceKind::kCheckpoint});
  const absl::StatusOr<std::optional<SavedCheckpoint>> saved = checkpoints_.Poll();
  if (!saved.ok()) return OnFailed(step, saved.status());
  if (saved->has_value()) OnSaved(**saved);
  return absl::OkStatus();
}

absl::Status SaveCycle::Finish(int64_t step) {
  if (!checkpoints_.saving()) return absl::OkStatus();
  const TraceScope scope(&trace_, {.kind = TraceKind::kCheckpoint});
  const absl::StatusOr<SavedCheckpoint> saved = checkpoints_.Finish();
  if (!saved.ok()) return OnFailed(step, saved.status());
  OnSaved(*saved);
  return absl::OkStatus();
}

absl::Status SaveCycle::SaveAtEnd(const TrainingProgress& progress, bool is_best) {
  HADAL_RETURN_IF_ERROR(Finish(progress.step));
  if (last_saved_step_ == progress.step) return absl::OkStatus();
  const TraceScope scope(&trace_, {.kind = TraceKind::kCheckpoint});
  Start(progress, is_best);
  HADAL_ASSIGN_OR_RETURN(const SavedCheckpoint saved, checkpoints_.Finish());
  OnSaved(saved);
  return absl::OkStatus();
}

void SaveCycle::OnSaved(const SavedCheckpoint& saved) {
  last_directory_ = saved.directory;
  last_saved_step_ = saved.step;
  if (sink_ == nullptr) return;
  sink_->OnCheckpoint({.step = saved.step,
                       .directory = saved.directory,
                       .seconds = saved.seconds,
                       .stall_seconds = saved.stall_seconds,
                       .interval_seconds = interval_seconds_});
}

std::string SaveCycle::LastGoodText() const {
  if (!last_directory_.empty()) return absl::StrCat("the last good checkpoint is ", last_directory_);
  if (last_saved_step_ > 0) return absl::StrCat("the last good checkpoint is that of step ", last_saved_step_);
  return "the run has no checkpoint yet";
}

absl::Status SaveCycle::OnFailed(int64_t step, const absl::Status& status) {
  if (EndsTheRun(status)) return status;
  if (sink_ != nullptr) {
    sink_->OnText(
        step, TextKind::kWarning,
        absl::StrCat("NO CHECKPOINT of step ", step_, ": ", status.message(), ". Training goes on; ", LastGoodText()));
  }
  return absl::OkStatus();
}

}  // namespace hadal
