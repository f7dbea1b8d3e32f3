#include "pipeline/checkpoint/checkpoint_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <initializer_list>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "runtime/attempt_name.h"
#include "runtime/check.h"
#include "runtime/crc32c.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr int64_t kMaxPointerBytes = 256;
constexpr int kMostSearches = 100;  // of a run that removes checkpoints as fast as they are opened

// What the link says, or the text of the file that stands for one.
absl::StatusOr<std::string> PointerTarget(const std::string& path) {
  std::string target(kMaxPointerBytes, '\0');
  const ssize_t bytes = readlink(path.c_str(), target.data(), target.size());
  if (bytes >= 0) return target.substr(0, static_cast<size_t>(bytes));
  if (errno != EINVAL) return ErrnoStatus(errno, "read the link", path);
  HADAL_ASSIGN_OR_RETURN(target, ReadFile(path, kMaxPointerBytes));
  return std::string(absl::StripSuffix(target, "\n"));
}

// An error that is no reason to pass over a checkpoint, with what to try.
absl::Status NotPassedOver(const std::string& directory, const absl::Status& error) {
  return absl::Status(error.code(), absl::StrCat(error.message(), "\n  The checkpoint ", directory,
                                                 " may be good all the same, so no older one takes its place. Mend "
                                                 "this and start again; or move that directory away to do without it"));
}

// Goes through the list once. Also returns Aborted if a listed checkpoint is no longer there.
absl::StatusOr<CheckpointReader> Search(const std::string& run_directory, const FindOptions& options,
                                        std::vector<RejectedCheckpoint>& rejected) {
  HADAL_ASSIGN_OR_RETURN(std::vector<CheckpointEntry> entries, ListCheckpoints(run_directory));
  std::erase_if(entries, [&](const CheckpointEntry& entry) { return entry.step >= options.before_step; });
  if (entries.empty()) return NotFoundError("there is no checkpoint in ", CheckpointsDirectory(run_directory));
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    absl::StatusOr<CheckpointReader> reader = CheckpointReader::Open(entry->directory);
    if (absl::IsNotFound(reader.status())) return AbortedError(reader.status().message());
    if (reader.ok() && options.need_moments && !reader->manifest().has_moments) {
      reader = DataLossError("it holds weights only, without Adam's moments");
    }
    if (reader.ok()) return reader;
    if (!IsDamage(reader.status())) return NotPassedOver(entry->directory, reader.status());
    rejected.push_back({.directory = entry->directory, .reason = reader.status()});
  }
  std::string reasons;
  for (const RejectedCheckpoint& bad : rejected) {
    absl::StrAppend(&reasons, "\n  ", bad.directory, ": ", bad.reason.message());
  }
  return DataLossError(
      "no checkpoint in ", CheckpointsDirectory(run_directory), " can be used:", reasons,
      "\n  Put a good copy of one in its place; without one, only a new run, in a directory of its own, is left");
}

std::string CheckpointPointerPath(const std::string& run_directory, CheckpointPointer pointer) {
  return JoinPath(CheckpointsDirectory(run_directory), pointer == CheckpointPointer::kLatest ? kLatestName : kBestName);
}

}  // namespace

absl::StatusOr<std::vector<CheckpointEntry>> ListCheckpoints(const std::string& run_directory) {
  const std::string parent = CheckpointsDirectory(run_directory);
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(parent);
  if (absl::IsNotFound(names.status())) return std::vector<CheckpointEntry>();
  HADAL_RETURN_IF_ERROR(names.status());
  std::vector<CheckpointEntry> entries;
  for (const std::string& name : *names) {
    if (const std::optional<int64_t> step = ParseCheckpointName(name)) {
      entries.push_back({.step = *step, .directory = JoinPath(parent, name)});
    }
  }
  std::ranges::sort(entries, {}, &CheckpointEntry::step);
  return entries;
}

absl::StatusOr<int64_t> ReadCheckpointPointer(const std::string& run_directory, CheckpointPointer pointer) {
  const std::string path = CheckpointPointerPath(run_directory, pointer);
  HADAL_ASSIGN_OR_RETURN(const std::string target, PointerTarget(path));
  const std::optional<int64_t> step = ParseCheckpointName(target);
  if (!step) {
    return DataLossError(
        path, " names \"", target,
        "\", which is no checkpoint of this run; remove it, or link it to a step_* directory beside it");
  }
  return *step;
}

FoundCheckpoint Found(const CheckpointReader& reader) {
  return {.checkpoint = {.step = reader.manifest().progress.step, .directory = reader.directory()},
          .manifest = reader.manifest(),
          .rejected = {}};
}

absl::StatusOr<FoundCheckpoint> FindNamed(const std::string& directory) {
  HADAL_ASSIGN_OR_RETURN(const CheckpointReader reader, CheckpointReader::Open(directory));
  return Found(reader);
}

absl::StatusOr<CheckpointReader> OpenLatest(const std::string& run_directory, const FindOptions& options,
                                            std::vector<RejectedCheckpoint>* rejected) {
  std::vector<RejectedCheckpoint> passed_over;
  for (int search = 1;; ++search) {
    passed_over.clear();
    absl::StatusOr<CheckpointReader> found = Search(run_directory, options, passed_over);
    if (absl::IsAborted(found.status()) && search < kMostSearches) continue;
    if (rejected != nullptr) *rejected = std::move(passed_over);
    return found;
  }
}

absl::StatusOr<FoundCheckpoint> FindLatest(const std::string& run_directory, const FindOptions& options) {
  std::vector<RejectedCheckpoint> rejected;
  HADAL_ASSIGN_OR_RETURN(const CheckpointReader reader, OpenLatest(run_directory, options, &rejected));
  FoundCheckpoint found = Found(reader);
  found.rejected = std::move(rejected);
  return found;
}

absl::StatusOr<std::string> RunOf(const std::string& run_or_checkpoint) {
  const std::string& path = run_or_checkpoint;
  if (PathExists(JoinPath(path, kManifestName))) return std::string();
  if (PathExists(CheckpointsDirectory(path))) return path;
  if (BaseName(path) == kCheckpointsName && PathExists(path)) return DirectoryName(path);
  if (ParseCheckpointName(BaseName(path)) && PathExists(path)) return std::string();
  return NotFoundError(path, " is neither a checkpoint (no ", kManifestName, ") nor a run directory (no ",
                       kCheckpointsName, "/)");
}

bool IsOfRun(const std::string& checkpoint, const std::string& run_directory) {
  std::error_code error;  // a folder that is missing is no other one
  const std::filesystem::path folder = std::filesystem::canonical(checkpoint, error).parent_path();
  return std::filesystem::equivalent(folder, CheckpointsDirectory(run_directory), error);
}

absl::StatusOr<CheckpointReader> OpenCheckpoint(const std::string& run_or_checkpoint) {
  HADAL_ASSIGN_OR_RETURN(const std::string run, RunOf(run_or_checkpoint));
  return run.empty() ? CheckpointReader::Open(run_or_checkpoint) : OpenLatest(run);
}

absl::StatusOr<CheckpointReader> OpenBestCheckpoint(const std::string& run_or_checkpoint) {
  HADAL_ASSIGN_OR_RETURN(const std::string run, RunOf(run_or_checkpoint));
  for (int search = 1; !run.empty() && search <= kMostSearches; ++search) {
    const absl::StatusOr<int64_t> best = ReadCheckpointPointer(run, CheckpointPointer::kBest);
    if (!best.ok()) break;
    absl::StatusOr<CheckpointReader> reader = CheckpointReader::Open(CheckpointDirectory(run, *best));
    if (!absl::IsNotFound(reader.status())) return reader;
    // Removed: a better one has taken its place, or it is gone for good.
    const absl::StatusOr<int64_t> now = ReadCheckpointPointer(run, CheckpointPointer::kBest);
    if (now.ok() && *now == *best) break;
  }
  return OpenCheckpoint(run_or_checkpoint);
}

namespace {

// ---- Leftovers of killed attempts, by their names ----

bool HasOnly(std::string_view characters, std::string_view text) {
  return !text.empty() && text.find_first_not_of(characters) == std::string_view::npos;
}

// Whether `name` is a checkpoint's name, `infix` and an attempt.
bool NamesAttempt(const std::string& name, std::string_view infix) {
  const size_t at = name.find(infix);
  return at != std::string::npos && ParseCheckpointName(name.substr(0, at)) &&
         IsAttempt(name.substr(at + infix.size()));
}

bool IsTemporaryDirectory(const std::string& name) {
  return NamesAttempt(name, kTemporaryInfix) || NamesAttempt(name, absl::StrCat(kRemovedSuffix, ".")) ||
         (absl::EndsWith(name, kRemovedSuffix) &&
          ParseCheckpointName(std::string(absl::StripSuffix(name, kRemovedSuffix))));
}

// Whether `name` is one of `finals` and an attempt. ReplaceFile puts a number behind the attempt where that name is
// taken.
bool IsTemporaryFile(const std::string& name, std::initializer_list<std::string> finals) {
  return std::ranges::any_of(finals, [&name](const std::string& final) {
    if (!absl::StartsWith(name, absl::StrCat(final, "."))) return false;
    const std::vector<std::string> parts = absl::StrSplit(name.substr(final.size() + 1), '.');
    return IsAttempt(parts[0]) && (parts.size() == 1 || (parts.size() == 2 && HasOnly("0123456789", parts[1])));
  });
}

bool IsDirectory(const std::string& path) {
  struct stat info;
  return lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// OK for a directory that another process has removed meanwhile.
absl::Status UnlessGone(const absl::Status& status) { return absl::IsNotFound(status) ? absl::OkStatus() : status; }

absl::Status RemoveDirectory(const std::string& parent, const std::string& name, const std::string& attempt) {
  const std::string doomed =
      JoinPath(parent, absl::StrCat(name.substr(0, name.find('.')), kRemovedSuffix, ".", attempt));
  if (const absl::Status renamed = RenamePath(JoinPath(parent, name), doomed); !renamed.ok()) {
    return UnlessGone(renamed);
  }
  return RemoveTree(doomed);
}

absl::Status SettleReplaced(const std::string& parent, const std::string& name, const std::string& attempt) {
  const std::string original = JoinPath(parent, name.substr(0, name.find(kReplacedInfix)));
  if (PathExists(original)) return RemoveDirectory(parent, name, attempt);
  return UnlessGone(RenamePath(JoinPath(parent, name), original));
}

absl::Status Settle(const std::string& parent, const std::string& name, const std::string& attempt) {
  const std::string path = JoinPath(parent, name);
  if (!IsDirectory(path)) {
    return IsTemporaryFile(name, {kLatestName, kBestName, kAttemptName}) ? RemoveTree(path) : absl::OkStatus();
  }
  if (IsTemporaryDirectory(name)) return RemoveDirectory(parent, name, attempt);
  return NamesAttempt(name, kReplacedInfix) ? SettleReplaced(parent, name, attempt) : absl::OkStatus();
}

// ---- Pointers and retention ----

// Returns the steps that the pointers protect. An unreadable pointer is an error: it is unknown which checkpoint it
// protects.
absl::StatusOr<std::set<int64_t>> ProtectedSteps(const std::string& run_directory) {
  std::set<int64_t> steps;
  for (const CheckpointPointer pointer : {CheckpointPointer::kLatest, CheckpointPointer::kBest}) {
    const absl::StatusOr<int64_t> step = ReadCheckpointPointer(run_directory, pointer);
    if (step.ok()) {
      steps.insert(*step);
    } else if (!absl::IsNotFound(step.status())) {
      return step.status();
    }
  }
  return steps;
}

// A directory in a pointer's place is a copy of a checkpoint, made by a program that follows links: kept, under another
// name.
absl::Status MovePointerAside(const std::string& path, const std::string& attempt) {
  return RenamePath(path, absl::StrCat(path, kReplacedInfix, attempt));
}

// `best` after the checkpoints behind `step` are gone: what was best when `step` was saved, where that is still there.
// A job that was killed between a checkpoint and its links has left an older one. `step` −1: there is no checkpoint.
absl::Status TakeBestBack(const std::string& run_directory, int64_t step, const std::string& attempt) {
  const absl::StatusOr<int64_t> best = ReadCheckpointPointer(run_directory, CheckpointPointer::kBest);
  const bool broken = absl::IsDataLoss(best.status()) || absl::IsFailedPrecondition(best.status()) ||
                      absl::IsInvalidArgument(best.status());
  const bool later = best.ok() && *best > step;
  if (step >= 0) {
    const auto reader = CheckpointReader::Open(CheckpointDirectory(run_directory, step));
    if (!reader.ok() && !IsDamage(reader.status())) return reader.status();
    if (reader.ok()) {
      const int64_t former = reader->manifest().progress.best_step();
      if (former >= 0 && PathExists(CheckpointDirectory(run_directory, former))) {
        if (best.ok() && *best == former) return absl::OkStatus();
        return SetCheckpointPointer(run_directory, CheckpointPointer::kBest, former, attempt);
      }
    }
  }
  if (!broken && !later) return absl::OkStatus();
  const std::string path = CheckpointPointerPath(run_directory, CheckpointPointer::kBest);
  return IsDirectory(path) ? MovePointerAside(path, attempt) : RemoveTree(path);
}

// ---- Commit ----

// Puts `from` in the place of `to`, a directory that may exist. Where the file system can exchange the two there is no
// moment without a checkpoint of that name; where it cannot, the old one steps aside first.
absl::Status ReplaceDirectory(const std::string& from, const std::string& to, const std::string& aside) {
  if (!PathExists(to)) return RenamePath(from, to);
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
    return RenamePath(from, aside);
  }
  HADAL_RETURN_IF_ERROR(RenamePath(to, aside));
  return RenamePath(from, to);
}

}  // namespace

absl::Status RemoveLeftovers(const std::string& run_directory, const std::string& attempt) {
  const std::string parent = CheckpointsDirectory(run_directory);
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(parent));
  absl::Status first_error;
  for (const std::string& name : names) first_error.Update(Settle(parent, name, attempt));
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> files, ListDirectory(run_directory));
  for (const std::string& name : files) {
    const std::string path = JoinPath(run_directory, name);
    if (!IsTemporaryFile(name, {kMetricsName, kResolvedConfigName}) || IsDirectory(path)) continue;
    first_error.Update(RemoveTree(path));
  }
  return first_error;
}

absl::StatusOr<std::vector<std::string>> SetAsideLaterCheckpoints(const std::string& run_directory, int64_t step,
                                                                  const std::string& attempt) {
  HADAL_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries, ListCheckpoints(run_directory));
  std::vector<std::string> moved;
  // An attempt that was stopped since its claim must not change what a later owner has written.
  const auto check_owner = [&] {
    const absl::Status owner = CheckOwner(run_directory, attempt);
    return absl::IsAborted(owner) ? owner : absl::OkStatus();
  };
  for (const CheckpointEntry& entry : entries) {
    HADAL_RETURN_IF_ERROR(check_owner());
    if (entry.step == step) {
      HADAL_RETURN_IF_ERROR(SetCheckpointPointer(run_directory, CheckpointPointer::kLatest, step, attempt));
    }
    if (entry.step <= step) continue;
    const std::string aside = absl::StrCat(entry.directory, kAbandonedInfix, attempt);
    const absl::Status renamed = RenamePath(entry.directory, aside);
    if (absl::IsNotFound(renamed)) continue;  // another attempt has moved it
    HADAL_RETURN_IF_ERROR(renamed);
    moved.push_back(aside);
  }
  HADAL_RETURN_IF_ERROR(check_owner());
  HADAL_RETURN_IF_ERROR(TakeBestBack(run_directory, step, attempt));
  if (!moved.empty()) HADAL_RETURN_IF_ERROR(SyncDirectory(CheckpointsDirectory(run_directory)));
  return moved;
}

absl::Status SetCheckpointPointer(const std::string& run_directory, CheckpointPointer pointer, int64_t step,
                                  const std::string& attempt) {
  const std::string path = CheckpointPointerPath(run_directory, pointer);
  const std::string temporary = absl::StrCat(path, ".", attempt);
  const std::string target = CheckpointName(step);
  HADAL_RETURN_IF_ERROR(RemoveTree(temporary));
  if (IsDirectory(path)) HADAL_RETURN_IF_ERROR(MovePointerAside(path, attempt));
  if (symlink(target.c_str(), temporary.c_str()) != 0) {
    // File systems without symbolic links (FAT, some object stores) return one of these.
    if (errno != EPERM && errno != ENOTSUP && errno != ENOSYS) return ErrnoStatus(errno, "make the link", temporary);
    return ReplaceFile(path, target + "\n", attempt);
  }
  if (absl::Status status = RenamePath(temporary, path); !status.ok()) {
    unlink(temporary.c_str());
    return status;
  }
  return SyncDirectory(CheckpointsDirectory(run_directory));
}

absl::Status ApplyRetention(const std::string& run_directory, const RetentionPolicy& policy,
                            const std::vector<ScoredStep>& best) {
  if (policy.keep_last == 0) return absl::OkStatus();
  HADAL_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries, ListCheckpoints(run_directory));
  HADAL_ASSIGN_OR_RETURN(std::set<int64_t> protected_steps, ProtectedSteps(run_directory));
  for (const ScoredStep& scored : best) protected_steps.insert(scored.step);
  absl::Status first_error;
  for (size_t i = 0; i + static_cast<size_t>(policy.keep_last) < entries.size(); ++i) {
    const CheckpointEntry& entry = entries[i];
    const bool milestone = policy.keep_every > 0 && entry.step % policy.keep_every == 0;
    if (milestone || protected_steps.contains(entry.step)) continue;
    // Renamed first: a crash halfway leaves nothing that looks like a checkpoint.
    const std::string doomed = entry.directory + kRemovedSuffix;
    absl::Status status = RemoveTree(doomed);
    if (status.ok()) status = RenamePath(entry.directory, doomed);
    if (status.ok()) status = RemoveTree(doomed);
    first_error.Update(status);
  }
  return first_error;
}

absl::Status CompleteCheckpointDirectory(const std::string& directory, CheckpointManifest manifest,
                                         const std::vector<Attachment>& attachments, bool is_whole) {
  for (const Attachment& attachment : attachments) {
    HADAL_CHECK(IsPlainFileName(attachment.name));
    HADAL_RETURN_IF_ERROR(WriteNewFile(JoinPath(directory, attachment.name), attachment.contents));
    manifest.attachments.push_back({.name = attachment.name,
                                    .bytes = static_cast<int64_t>(attachment.contents.size()),
                                    .crc32c = Crc32c(attachment.contents.data(), attachment.contents.size())});
  }
  HADAL_RETURN_IF_ERROR(WriteNewFile(JoinPath(directory, kManifestName), manifest.ToString()));
  if (!is_whole) return absl::OkStatus();
  // Opened as a reader would: what cannot be loaded is never committed.
  if (absl::Status status = CheckpointReader::Open(directory).status(); !status.ok()) {
    return InternalError("what was written makes no checkpoint: ", status.message(),
                         "; is the run directory on a file system that all ranks share?");
  }
  return SyncDirectory(directory);
}

CheckpointCommitter::CheckpointCommitter(CheckpointCommitterOptions options) : options_(std::move(options)) {
  HADAL_CHECK(IsPlainFileName(options_.attempt));
}

std::string CheckpointCommitter::TemporaryDirectory(int64_t step) const {
  return JoinPath(CheckpointsDirectory(options_.run_directory),
                  absl::StrCat(CheckpointName(step), kTemporaryInfix, options_.attempt));
}

absl::Status CheckpointCommitter::Claim(const std::optional<std::string>& predecessor) {
  HADAL_ASSIGN_OR_RETURN(ownership_, RunOwnership::Claim({.run_directory = options_.run_directory,
                                                          .attempt = options_.attempt,
                                                          .predecessor = predecessor}));
  return absl::OkStatus();
}

absl::Status CheckpointCommitter::CheckClaim() const {
  return ownership_ != nullptr ? ownership_->Check() : CheckOwner(options_.run_directory, options_.attempt);
}

CheckpointFileOptions CheckpointCommitter::FileOptions(int64_t step, int rank) const {
  return {.directory = TemporaryDirectory(step),
          .rank = rank,
          .step = step,
          .plan_hash = options_.plan_hash,
          .parameters = &options_.parameters};
}

absl::Status CheckpointCommitter::Complete(const CommitRequest& request, const std::string& directory,
                                           bool is_whole) const {
  HADAL_RETURN_IF_ERROR(MakeDirectories(directory));
  return CompleteCheckpointDirectory(directory,
                                     {.progress = request.progress,
                                      .plan_hash = options_.plan_hash,
                                      .attempt = options_.attempt,
                                      .time = absl::Now(),
                                      .config_text = request.config_text,
                                      .model_settings = request.model_settings,
                                      .inputs = request.inputs,
                                      .muon = options_.muon,
                                      .parameters = options_.parameters,
                                      .files = request.files,
                                      .attachments = {}},
                                     request.attachments, is_whole);
}

absl::StatusOr<CommitResult> CheckpointCommitter::Commit(const CommitRequest& request) const {
  const int64_t step = request.progress.step;
  const std::string parent = CheckpointsDirectory(options_.run_directory);
  const std::string temporary = TemporaryDirectory(step);
  const std::string aside = JoinPath(parent, absl::StrCat(CheckpointName(step), kReplacedInfix, options_.attempt));
  absl::Cleanup remove_temporary = [&] { Abandon(step).IgnoreError(); };

  HADAL_RETURN_IF_ERROR(Complete(request, temporary));
  HADAL_RETURN_IF_ERROR(CheckClaim());
  CommitResult result = {.directory = CheckpointDirectory(options_.run_directory, step), .retention = {}};
  HADAL_RETURN_IF_ERROR(ReplaceDirectory(temporary, result.directory, aside));
  std::move(remove_temporary).Cancel();
  HADAL_RETURN_IF_ERROR(SyncDirectory(parent));
  HADAL_RETURN_IF_ERROR(CheckClaim());
  HADAL_RETURN_IF_ERROR(
      SetCheckpointPointer(options_.run_directory, CheckpointPointer::kLatest, step, options_.attempt));
  if (request.is_best) {
    HADAL_RETURN_IF_ERROR(
        SetCheckpointPointer(options_.run_directory, CheckpointPointer::kBest, step, options_.attempt));
  }
  result.retention = RemoveOld(aside, request.progress.best);
  return result;
}

absl::Status CheckpointCommitter::RemoveOld(const std::string& replaced, const std::vector<ScoredStep>& best) const {
  absl::Status status = RemoveTree(replaced);
  HADAL_RETURN_IF_ERROR(CheckClaim());
  status.Update(ApplyRetention(options_.run_directory, options_.retention, best));
  return status;
}

absl::Status CheckpointCommitter::Abandon(int64_t step) const { return RemoveTree(TemporaryDirectory(step)); }

}  // namespace hadal
