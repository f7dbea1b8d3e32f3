#include "pipeline/checkpoint/training_checkpoints.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>
#include <span>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "pipeline/checkpoint/checkpoint_reader.h"
#include "pipeline/checkpoint/model_settings.h"
#include "runtime/check.h"
#include "runtime/files.h"
#include "runtime/machine.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"
#include "runtime/thrown_error.h"

namespace hadal {
namespace {

// Between two votes whether a save is done: short beside a save, long beside a vote.
constexpr absl::Duration kPause = absl::Milliseconds(5);

// On a thread of rank 0's; of every rank's if `copies` is not null. `files`: every rank's WrittenFile as text.
absl::StatusOr<CommitResult> Commit(const CheckpointCommitter& committer, MemoryCopies* copies, CommitRequest request,
                                    const std::vector<std::string>& files) {
  return CatchExceptions([&]() -> absl::StatusOr<CommitResult> {
    if (copies != nullptr) HADAL_RETURN_IF_ERROR(copies->Store(request.progress.step));
    if (copies != nullptr && !copies->leads()) return CommitResult();
    if (copies != nullptr) HADAL_RETURN_IF_ERROR(copies->WriteAttempt());
    for (const std::string& text : files) {
      HADAL_ASSIGN_OR_RETURN(request.files.emplace_back(), WrittenFile::Parse(text));
    }
    if (copies != nullptr) {
      HADAL_RETURN_IF_ERROR(committer.Complete(request, copies->Directory(request.progress.step), /*is_whole=*/false));
      return CommitResult();
    }
    absl::StatusOr<CommitResult> result = committer.Commit(request);
    if (result.ok()) return result;
    const absl::Status claim = committer.CheckClaim();  // a new owner removes what was to be committed
    return absl::IsAborted(claim) ? claim : result.status();
  });
}

// Whether the run cannot continue after a failed save: another job owns the directory, or the ranks have lost each
// other.
bool EndsTheRun(const absl::Status& save) {
  return absl::IsAborted(save) || absl::IsUnavailable(save) || absl::IsDeadlineExceeded(save);
}

}  // namespace

TrainingCheckpoints::TrainingCheckpoints(TrainingCheckpointsOptions options, const StageState& state, int rank,
                                         Collectives& collectives, MetricsSink* sink, TraceBuffer* trace,
                                         std::unique_ptr<MemoryCopies> copies)
    : options_(std::move(options)), state_(state), rank_(rank), collectives_(collectives), sink_(sink), trace_(trace) {
  copies_ = std::move(copies);
}

void TrainingCheckpoints::Warn(std::string_view text) const {
  if (rank_ == 0 && options_.warn) options_.warn(text);
}

// ---- Saving ----

absl::Status TrainingCheckpoints::ClaimHere(int64_t step) {
  if (!loaded_elsewhere_ && !loaded_directory_.empty() && !PathExists(loaded_directory_)) {
    return AbortedError(options_.run_directory, " is in use by another attempt, which has moved or removed ",
                        loaded_directory_, " since this one read it; start again");
  }
  HADAL_RETURN_IF_ERROR(committer_->Claim(options_.predecessor));
  if (const absl::Status removed = RemoveLeftovers(options_.run_directory, attempt_); !removed.ok()) {
    Warn(absl::StrCat("what an earlier attempt left half-written could not be removed: ", removed.message()));
  }
  HADAL_RETURN_IF_ERROR(committer_->CheckClaim());
  const int64_t kept = !loaded_elsewhere_ ? step : IsOfRun(loaded_directory_, options_.run_directory) ? step - 1 : -1;
  const absl::StatusOr<std::vector<std::string>> moved =
      SetAsideLaterCheckpoints(options_.run_directory, kept, attempt_);
  HADAL_RETURN_IF_ERROR(CauseOf(moved.status(), options_.run_directory, attempt_));
  for (const std::string& directory : *moved)
    Warn(absl::StrCat("a checkpoint of ", loaded_elsewhere_ ? "another history" : "a later step",
                      " was set aside: ", directory));
  return absl::OkStatus();
}

// Checks that all ranks see rank 0's claim: a directory that some do not share holds no whole checkpoint, which only
// the first save would find.
absl::Status TrainingCheckpoints::AwaitSight() {
  constexpr std::string_view kWhat = "seeing the run directory";
  absl::Status claim;
  for (int seconds = 0; seconds <= options_.sight_seconds; ++seconds) {
    if (seconds == 5) Warn(absl::StrCat("not all hosts see ", options_.run_directory, " yet; waiting up to a minute"));
    if (seconds > 0) absl::SleepFor(absl::Seconds(1));
    claim = CheckOwner(options_.run_directory, attempt_);
    HADAL_RETURN_IF_ERROR(collectives_.AllOk(rank_ == 0 ? claim : absl::OkStatus(), kWhat));
    HADAL_ASSIGN_OR_RETURN(const bool unseen, collectives_.AnyRank(!claim.ok(), kWhat));
    if (!unseen) return absl::OkStatus();
  }
  if (!claim.ok()) {
    claim = InvalidArgumentError(
        "host ", HostName(), " does not see what rank 0 has written to ", options_.run_directory,
        "; put it on a file system that all hosts share, under one path (`hadal doctor` tests it)");
  }
  return collectives_.AllOk(claim, kWhat);
}

absl::Status TrainingCheckpoints::Claim(int64_t step) {
  attempt_ = rank_ == 0 ? NewCheckpointAttempt() : "";
  HADAL_RETURN_IF_ERROR(collectives_.Broadcast(attempt_, 0, "checkpoint attempt"));
  committer_ =
      std::make_unique<CheckpointCommitter>(CheckpointCommitterOptions{.run_directory = options_.run_directory,
                                                                       .attempt = attempt_,
                                                                       .plan_hash = state_.plan().Hash(),
                                                                       .parameters = DescribeParameters(state_.plan()),
                                                                       .muon = state_.plan().muon_steps > 0,
                                                                       .retention = options_.retention});
  if (copies_ != nullptr) copies_->Announce(attempt_, step);
  HADAL_RETURN_IF_ERROR(collectives_.AllOk(absl::OkStatus(), "announcing the claim"));
  absl::Status claimed = rank_ == 0 ? ClaimHere(step) : absl::OkStatus();
  if (claimed.ok() && state_.device() != nullptr && queue_ == nullptr) {
    absl::StatusOr<std::unique_ptr<SideQueue>> queue = SliceStaging::MakeQueue(*state_.device());
    claimed = queue.status();
    if (queue.ok()) queue_ = *std::move(queue);
  }
  HADAL_RETURN_IF_ERROR(collectives_.AllOk(claimed, "claiming the run directory"));
  HADAL_RETURN_IF_ERROR(AwaitSight());
  last_step_ = loaded_elsewhere_ || loaded_copy_ ? -1 : step;
  for (Stopwatch& watch : since_begin_) watch.Restart();
  if (copies_ == nullptr) return absl::OkStatus();
  claimed = collectives_.AllOk(copies_->Claim(attempt_, step), "claiming the copies in memory");
  if (claimed.ok() || EndsTheRun(claimed)) return claimed;
  Warn(absl::StrCat("NO COPIES IN MEMORY: ", claimed.message()));
  copies_ = nullptr;
  return absl::OkStatus();
}

absl::Status TrainingCheckpoints::OwnershipLost() const {
  if (rank_ != 0 || committer_ == nullptr) return absl::OkStatus();
  const absl::Status claim = committer_->CheckClaim();
  return absl::IsAborted(claim) ? claim : absl::OkStatus();
}

absl::Status TrainingCheckpoints::Begin(TrainingProgress& now, bool is_best) {
  HADAL_RETURN_IF_ERROR(Finish(now));
  Start(now, is_best);
  return absl::OkStatus();
}

void TrainingCheckpoints::Start(const TrainingProgress& progress, bool is_best, bool in_memory) {
  HADAL_CHECK(!saving_);
  saving_ = true;
  in_memory_ = in_memory;
  interval_seconds_ = since_begin_[in_memory].Seconds();
  since_begin_[in_memory].Restart();
  stall_seconds_ = 0;
  progress_ = progress;
  is_best_ = is_best;
  CheckpointFileOptions file = committer_->FileOptions(progress.step, rank_);
  if (in_memory) {
    file.directory = copies_->Directory(progress.step);
    file.removed_first = copies_->GivingRoom(progress.step);
  }
  file_ = std::make_unique<BackgroundFile>(file, StatesOf(state_.owned(), LoadedState::kAll), state_.save_buffer(),
                                           SliceStaging{state_.device(), queue_.get(), state_.save_staging()});
}

void TrainingCheckpoints::BeforeUpdate(const Stream& stream) {
  if (file_ == nullptr) return;
  const Stopwatch watch;
  file_->BeforeUpdate(stream);
  stall_seconds_ += watch.Seconds();
}

absl::Status TrainingCheckpoints::Continue(TrainingProgress& now, bool to_its_end) {
  if (saving_) {
    const TraceScope scope(trace_, {.kind = TraceKind::kCheckpoint});
    HADAL_RETURN_IF_ERROR(WarnIfFailed(now.step, to_its_end ? Await() : Advance().status()));
  }
  ForgetUnsavedBest(now);
  return absl::OkStatus();
}

absl::Status TrainingCheckpoints::SaveAtEnd(TrainingProgress& now, bool is_best) {
  HADAL_RETURN_IF_ERROR(Finish(now));
  if (IsSaved(now)) return absl::OkStatus();
  const TraceScope scope(trace_, {.kind = TraceKind::kCheckpoint});
  Start(now, is_best);
  return Await();
}

absl::StatusOr<bool> TrainingCheckpoints::Advance() {
  absl::Cleanup end = [this] { End(); };
  const Stopwatch watch;
  bool busy = file_ != nullptr
                  ? !file_->done()
                  : commit_.valid() && commit_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
  if (exchanging_) {
    HADAL_ASSIGN_OR_RETURN(busy, copies_->Busy());
  }
  HADAL_ASSIGN_OR_RETURN(const bool anyone_busy, collectives_.AnyRank(busy, "a checkpoint's files"));
  if (!anyone_busy && file_ == nullptr && !exchanging_) {
    HADAL_RETURN_IF_ERROR(Settle());
    return true;
  }
  if (!anyone_busy && exchanging_) BeginCommit();
  if (!anyone_busy && file_ != nullptr) HADAL_RETURN_IF_ERROR(EndFiles());
  stall_seconds_ += watch.Seconds();
  std::move(end).Cancel();
  return false;
}

absl::Status TrainingCheckpoints::Await() {
  // From here on this thread waits for files, not for the device: its DeviceWatch must not count that time.
  if (Device* const device = state_.device(); device != nullptr) device->Synchronize();
  while (true) {
    HADAL_ASSIGN_OR_RETURN(const bool over, Advance());
    if (over) return absl::OkStatus();
    const Stopwatch watch;
    absl::SleepFor(kPause);
    stall_seconds_ += watch.Seconds();
  }
}

void TrainingCheckpoints::End() {
  saving_ = exchanging_ = false;
  file_.reset();
  commit_ = {};
  if (in_memory_) copies_->EndExchange();
}

absl::Status TrainingCheckpoints::EndFiles() {
  const absl::StatusOr<WrittenFile> file = file_->Finish();
  file_.reset();
  absl::Status written = file.status();
  if (!written.ok()) {
    // An attempt that takes a run directory over removes what others are writing there.
    if (const absl::Status claim = committer_->CheckClaim(); absl::IsAborted(claim)) written = claim;
  }
  if (absl::Status all = collectives_.AllOk(written, "writing a checkpoint"); !all.ok()) {
    if (EndsTheRun(all)) return all;
    // No rank tries this step again before the files of this try are gone.
    const absl::Status removed = rank_ == 0 && !in_memory_ ? committer_->Abandon(progress_.step) : absl::OkStatus();
    all.Update(collectives_.AllOk(removed, "removing an unfinished checkpoint"));
    return all;
  }
  HADAL_ASSIGN_OR_RETURN(files_, collectives_.AllGather(std::string_view(file->ToString()), "checkpoint files"));
  exchanging_ = in_memory_;
  if (exchanging_) return copies_->BeginExchange(progress_.step, files_);
  BeginCommit();
  return absl::OkStatus();
}

void TrainingCheckpoints::BeginCommit() {
  exchanging_ = false;
  if (rank_ != 0 && !in_memory_) return;
  commit_ = std::async(std::launch::async, Commit, std::cref(*committer_), in_memory_ ? copies_.get() : nullptr,
                       CommitRequest{.progress = progress_,
                                     .config_text = options_.config_text,
                                     .model_settings = ModelSettingsJson(state_.plan().options),
                                     .inputs = options_.inputs,
                                     .files = {},
                                     .attachments = options_.attachments,
                                     .is_best = is_best_},
                       std::move(files_));
}

absl::Status TrainingCheckpoints::Settle() {
  absl::StatusOr<CommitResult> committed = CommitResult{};
  if (commit_.valid()) committed = commit_.get();
  HADAL_RETURN_IF_ERROR(collectives_.AllOk(committed.status(), "committing a checkpoint"));
  if (!committed->retention.ok()) {
    Warn(absl::StrCat("old checkpoints could not be removed: ", committed->retention.message()));
  }
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::vector<double>> stalls,
                         collectives_.AllGather(std::span(&stall_seconds_, 1), "a checkpoint's times"));
  if (!in_memory_) {
    last_directory_ = committed->directory;
    last_step_ = progress_.step;
    last_progress_ = progress_;
  }
  if (sink_ == nullptr) return absl::OkStatus();
  CheckpointMetrics metrics{.step = progress_.step,
                            .directory = in_memory_ ? copies_->Directory(progress_.step) : committed->directory,
                            .in_memory = in_memory_,
                            .seconds = since_begin_[in_memory_].Seconds(),
                            .interval_seconds = interval_seconds_};
  for (const std::vector<double>& of_rank : stalls) {
    metrics.stall_seconds = std::max(metrics.stall_seconds, of_rank[0]);
  }
  sink_->OnCheckpoint(metrics);
  return absl::OkStatus();
}

std::string TrainingCheckpoints::LastGoodText() const {
  if (!last_directory_.empty()) return absl::StrCat("the last good checkpoint is ", last_directory_);
  if (last_step_ > 0) return absl::StrCat("the last good checkpoint is that of step ", last_step_);
  return "the run has no checkpoint yet";
}

absl::Status TrainingCheckpoints::WarnIfFailed(int64_t step, const absl::Status& save) {
  if (save.ok() || EndsTheRun(save)) return save;
  if (in_memory_) RemoveTree(copies_->Directory(progress_.step)).IgnoreError();
  if (!in_memory_) failed_step_ = progress_.step;
  if (sink_ != nullptr && !(in_memory_ && std::exchange(copy_failed_, true))) {
    sink_->OnText(step, TextKind::kWarning,
                  absl::StrCat(in_memory_ ? "NO COPY IN MEMORY" : "NO CHECKPOINT", " of step ", progress_.step, ": ",
                               save.message(), ". Training continues; ", LastGoodText()));
  }
  return absl::OkStatus();
}

void TrainingCheckpoints::ForgetUnsavedBest(TrainingProgress& now) const {
  if (failed_step_ == now.step || !now.IsAmongBest(failed_step_)) return;
  std::erase_if(now.best, [&](const ScoredStep& scored) { return scored.step == failed_step_; });
  if (now.best.empty() && last_progress_) now.best = last_progress_->best;
}

// ---- Loading ----

absl::Status TrainingCheckpoints::LoadHere(const SharedCheckpoint& from, LoadedState loaded) const {
  HADAL_ASSIGN_OR_RETURN(CheckpointReader checkpoint, CheckpointReader::Open(from.directory, from.manifest));
  HADAL_RETURN_IF_ERROR(
      LoadState(checkpoint, loaded, {options_.attachments, options_.new_rows, options_.seed}, state_));
  // A run has its vocabularies from its corpus; a checkpoint whose own are damaged is refused all the same.
  if (rank_ != 0) return absl::OkStatus();
  for (const AttachedFile& file : from.manifest.attachments) {
    HADAL_RETURN_IF_ERROR(checkpoint.ReadAttachment(file.name).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<TrainingProgress> TrainingCheckpoints::LoadShared(const SharedCheckpoint& from, LoadedState loaded) {
  absl::Status status = LoadHere(from, loaded);
  if (rank_ != 0 && IsDamage(status)) {
    // Does this host have another checkpoint there, or none? If its manifest is damaged too, keep the first error.
    const absl::Status own = CompareWithOwn(from, rank_);
    if (!own.ok() && !absl::IsDataLoss(own)) status = own;
  }
  HADAL_RETURN_IF_ERROR(collectives_.AllOk(status, "loading a checkpoint"));
  return from.manifest.progress;
}

absl::StatusOr<TrainingProgress> TrainingCheckpoints::Load(absl::StatusOr<FoundCheckpoint> chosen, LoadedState loaded) {
  HADAL_ASSIGN_OR_RETURN(const SharedCheckpoint shared, ShareCheckpoint(std::move(chosen), rank_, collectives_));
  HADAL_ASSIGN_OR_RETURN(const TrainingProgress progress, LoadShared(shared, loaded));
  if (loaded == LoadedState::kAll) {
    // If the checkpoint is another run's or has another name, this run's checkpoints of its step or of all steps are of
    // another history. Rank 0 decides.
    const std::string own = CheckpointDirectory(options_.run_directory, progress.step);
    std::error_code error;
    const bool elsewhere = rank_ == 0 && !std::filesystem::equivalent(shared.directory, own, error);
    HADAL_ASSIGN_OR_RETURN(loaded_elsewhere_, collectives_.AnyRank(elsewhere, "the run of a checkpoint"));
    loaded_directory_ = shared.directory;
    last_progress_ = progress;
  }
  return progress;
}

absl::StatusOr<std::optional<TrainingProgress>> TrainingCheckpoints::LoadLatest(const FindCheckpoint& find) {
  int64_t before_step = FindOptions().before_step;
  absl::Status refused;
  int gone = 0;
  std::set<std::string> warned;  // of which the user has been warned
  while (true) {
    absl::Status fetched;
    std::string copy;
    if (copies_ != nullptr && attempt_.empty()) fetched = copies_->Fetch(before_step, copy);
    if (EndsTheRun(fetched)) return fetched;
    if (!fetched.ok()) Warn(absl::StrCat("the copies in memory cannot be used: ", fetched.message()));
    absl::StatusOr<FoundCheckpoint> found = FoundCheckpoint{};
    if (rank_ == 0) {
      found = find            ? find(before_step, copy)
              : !copy.empty() ? FindNamed(copy)
                              : FindLatest(options_.run_directory, {.before_step = before_step, .need_moments = true});
      // None yet: an empty directory name says so. None but refused ones: an error, never a silent new start.
      if (absl::IsNotFound(found.status())) {
        found = refused.ok() ? absl::StatusOr<FoundCheckpoint>(FoundCheckpoint()) : refused;
      }
      if (found.ok()) {
        for (const RejectedCheckpoint& rejected : found->rejected) {
          if (!warned.insert(rejected.directory).second) continue;
          Warn(absl::StrCat("CHECKPOINT REFUSED: ", rejected.directory, ": ", rejected.reason.message()));
        }
      }
    }
    HADAL_ASSIGN_OR_RETURN(SharedCheckpoint shared, ShareCheckpoint(std::move(found), rank_, collectives_));
    if (shared.directory.empty()) return std::nullopt;
    if (!copy.empty()) shared.directory = copy;  // this host's
    absl::StatusOr<TrainingProgress> progress = LoadShared(shared, LoadedState::kAll);
    if (progress.ok()) {
      loaded_directory_ = shared.directory;
      loaded_copy_ = !copy.empty();
      last_progress_ = *progress;
      return *progress;
    }
    // Until this attempt claims it, another may own the run and remove old checkpoints.
    if (absl::IsNotFound(progress.status()) && ++gone < kMostChoices) continue;
    if (!absl::IsDataLoss(progress.status())) return progress.status();
    refused = progress.status();
    Warn(absl::StrCat("CHECKPOINT REFUSED: ", shared.directory, ": ", refused.message(), " — trying an older one"));
    before_step = shared.manifest.progress.step;
  }
}

}  // namespace hadal
