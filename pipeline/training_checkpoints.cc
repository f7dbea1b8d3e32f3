#include "pipeline/training_checkpoints.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "pipeline/model_settings.h"
#include "runtime/status_macros.h"

namespace hadal {

TrainingCheckpoints::TrainingCheckpoints(TrainingCheckpointsOptions options, const StageState& state, int rank,
                                         Collectives& collectives)
    : options_(std::move(options)), state_(state), rank_(rank), collectives_(collectives) {}

void TrainingCheckpoints::Warn(std::string_view text) const {
  if (rank_ == 0 && options_.warn) options_.warn(text);
}

absl::Status TrainingCheckpoints::ClaimHere(int64_t step, const std::string& attempt) {
  HADAL_RETURN_IF_ERROR(writer_->Claim());
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> moved,
                         SetAsideLaterCheckpoints(options_.run_directory, step, attempt));
  for (const std::string& directory : moved)
    Warn(absl::StrCat("a checkpoint of a later step was set aside: ", directory));
  return absl::OkStatus();
}

absl::Status TrainingCheckpoints::Claim(int64_t step) {
  std::string attempt = rank_ == 0 ? NewCheckpointAttempt() : "";
  HADAL_RETURN_IF_ERROR(collectives_.Broadcast(attempt, 0, "checkpoint attempt"));
  writer_ = std::make_unique<CheckpointWriter>(CheckpointWriterOptions{.run_directory = options_.run_directory,
                                                                       .attempt = attempt,
                                                                       .plan_hash = state_.plan().Hash(),
                                                                       .parameters = DescribeParameters(state_.plan()),
                                                                       .retention = options_.retention});
  return collectives_.AllOk(rank_ == 0 ? ClaimHere(step, attempt) : absl::OkStatus(), "claiming the run directory");
}

std::vector<SliceState> TrainingCheckpoints::Describe(std::span<const StateSlice> slices, bool weights_only) {
  std::vector<SliceState> result;
  for (const StateSlice& slice : slices) {
    SliceState& state = result.emplace_back();
    state.parameter = slice.parameter;
    state.slice = slice.slice;
    state.weight = slice.weight;
    if (weights_only) continue;
    state.first_moment = slice.first_moment;
    state.second_moment = slice.second_moment;
  }
  return result;
}

absl::StatusOr<CommitResult> TrainingCheckpoints::Commit(const std::vector<std::string>& files, CommitRequest request) {
  for (const std::string& text : files) {
    HADAL_ASSIGN_OR_RETURN(WrittenFile written, WrittenFile::Parse(text));
    request.files.push_back(std::move(written));
  }
  return writer_->Commit(request);
}

absl::StatusOr<std::string> TrainingCheckpoints::Save(const TrainingProgress& progress, bool is_best) {
  const absl::StatusOr<WrittenFile> file =
      writer_->WriteRankFile(progress.step, rank_, Describe(state_.owned(), /*weights_only=*/false));
  if (absl::Status all = collectives_.AllOk(file.status(), "writing a checkpoint"); !all.ok()) {
    if (rank_ == 0) all.Update(writer_->Abandon(progress.step));
    return all;
  }
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                         collectives_.AllGather(std::string_view(file->ToString()), "checkpoint files"));
  absl::StatusOr<CommitResult> committed = CommitResult{};
  if (rank_ == 0) {
    CommitRequest request{.progress = progress,
                          .config_text = options_.config_text,
                          .model_settings = ModelSettingsJson(state_.plan().options),
                          .attachments = options_.attachments,
                          .is_best = is_best};
    committed = Commit(texts, std::move(request));
    if (committed.ok() && !committed->retention.ok()) {
      Warn(absl::StrCat("old checkpoints could not be removed: ", committed->retention.message()));
    }
  }
  HADAL_RETURN_IF_ERROR(collectives_.AllOk(committed.status(), "committing a checkpoint"));
  return committed->directory;
}

absl::StatusOr<TrainingProgress> TrainingCheckpoints::LoadHere(const std::string& directory, bool weights_only) {
  HADAL_ASSIGN_OR_RETURN(CheckpointReader reader, CheckpointReader::Open(directory));
  HADAL_RETURN_IF_ERROR(CompareParameters(reader.manifest().parameters, DescribeParameters(state_.plan())));
  HADAL_RETURN_IF_ERROR(reader.ReadSlices(Describe(state_.slices(), weights_only)));
  // A run has its vocabularies from its corpus; a checkpoint whose own are damaged is refused all the same.
  if (rank_ == 0) {
    for (const AttachedFile& file : reader.manifest().attachments) {
      HADAL_RETURN_IF_ERROR(reader.ReadAttachment(file.name).status());
    }
  }
  return reader.manifest().progress;
}

absl::StatusOr<TrainingProgress> TrainingCheckpoints::Load(const std::string& directory, bool weights_only) {
  const absl::StatusOr<TrainingProgress> progress = LoadHere(directory, weights_only);
  HADAL_RETURN_IF_ERROR(collectives_.AllOk(progress.status(), "loading a checkpoint"));
  return progress;
}

absl::StatusOr<std::optional<TrainingProgress>> TrainingCheckpoints::LoadLatest() {
  // Contents are verified by every rank as it reads; reading them here too would read everything twice.
  FindOptions find{.verify_contents = false, .need_moments = true};
  absl::Status refused;
  while (true) {
    absl::StatusOr<FoundCheckpoint> found = FoundCheckpoint{};
    std::string directory;
    if (rank_ == 0) {
      found = FindLatest(options_.run_directory, find);
      if (found.ok()) {
        for (const RejectedCheckpoint& rejected : found->rejected) {
          Warn(absl::StrCat("CHECKPOINT REFUSED: ", rejected.directory, ": ", rejected.reason.message()));
        }
        directory = found->checkpoint.directory;
      } else if (absl::IsNotFound(found.status())) {
        // None yet: an empty directory name says so. None but refused ones: an error, never a silent new start.
        found = refused.ok() ? absl::StatusOr<FoundCheckpoint>(FoundCheckpoint{}) : refused;
      }
    }
    HADAL_RETURN_IF_ERROR(collectives_.AllOk(found.status(), "looking for a checkpoint"));
    HADAL_RETURN_IF_ERROR(collectives_.Broadcast(directory, 0, "checkpoint to load"));
    if (directory.empty()) return std::nullopt;
    absl::StatusOr<TrainingProgress> progress = Load(directory, /*weights_only=*/false);
    if (progress.ok()) return *progress;
    if (!absl::IsDataLoss(progress.status())) return progress.status();
    Warn(absl::StrCat("CHECKPOINT REFUSED: ", directory, ": ", progress.status().message(), " — trying an older one"));
    refused = progress.status();
    if (rank_ == 0) find.before_step = found->checkpoint.step;
  }
}

}  // namespace hadal
