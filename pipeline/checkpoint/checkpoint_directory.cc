#include "pipeline/checkpoint/checkpoint_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "pipeline/checkpoint/checkpoint_leftovers.h"
#include "pipeline/checkpoint/checkpoint_reader.h"
#include "runtime/check.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr char kStepPrefix[] = "step_";
constexpr size_t kStepPrefixLength = sizeof(kStepPrefix) - 1;
constexpr int64_t kMaxPointerBytes = 256;

std::string PointerPath(const std::string& run_directory, CheckpointPointer pointer) {
  return JoinPath(CheckpointsDirectory(run_directory), pointer == CheckpointPointer::kLatest ? "latest" : "best");
}

// What the link says, or the text of the file that stands for one.
absl::StatusOr<std::string> PointerTarget(const std::string& path) {
  std::string target(kMaxPointerBytes, '\0');
  const ssize_t bytes = readlink(path.c_str(), target.data(), target.size());
  if (bytes >= 0) return target.substr(0, static_cast<size_t>(bytes));
  if (errno != EINVAL) return ErrnoStatus(errno, "read the link", path);
  HADAL_ASSIGN_OR_RETURN(target, ReadFile(path, kMaxPointerBytes));
  return std::string(absl::StripSuffix(target, "\n"));
}

// OK and the steps that the pointers protect; a pointer that cannot be read is an error, for it may protect anything.
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

absl::Status CheckCheckpoint(const std::string& directory, const FindOptions& options) {
  HADAL_ASSIGN_OR_RETURN(const CheckpointReader reader, CheckpointReader::Open(directory));
  if (options.need_moments && !reader.manifest().has_moments) {
    return absl::NotFoundError("it holds weights only, without Adam's moments");
  }
  return absl::OkStatus();
}

// An error that is no reason to pass over a checkpoint, with what to try.
absl::Status NotPassedOver(const std::string& directory, const absl::Status& error) {
  return absl::Status(error.code(),
                      absl::StrCat(error.message(), "\n  The checkpoint ", directory,
                                   " may be good all the same, so no older one takes its place. Mend this and "
                                   "start again; or move that directory away to do without it"));
}

}  // namespace

std::string CheckpointsDirectory(const std::string& run_directory) { return JoinPath(run_directory, "checkpoints"); }

std::string CheckpointName(int64_t step) {
  HADAL_CHECK_GE(step, 0);
  return absl::StrFormat("step_%08d", step);
}

std::optional<int64_t> ParseCheckpointName(const std::string& name) {
  int64_t step = 0;
  if (!absl::StartsWith(name, kStepPrefix) || !absl::SimpleAtoi(name.substr(kStepPrefixLength), &step) || step < 0 ||
      CheckpointName(step) != name) {
    return std::nullopt;
  }
  return step;
}

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
  std::sort(entries.begin(), entries.end(),
            [](const CheckpointEntry& a, const CheckpointEntry& b) { return a.step < b.step; });
  return entries;
}

absl::StatusOr<int64_t> ReadCheckpointPointer(const std::string& run_directory, CheckpointPointer pointer) {
  const std::string path = PointerPath(run_directory, pointer);
  HADAL_ASSIGN_OR_RETURN(const std::string target, PointerTarget(path));
  const std::optional<int64_t> step = ParseCheckpointName(target);
  if (!step) {
    return absl::DataLossError(absl::StrCat(path, " names \"", target,
                                            "\", which is no checkpoint of this run; "
                                            "remove it, or link it to a step_* directory beside it"));
  }
  return *step;
}

absl::Status SetCheckpointPointer(const std::string& run_directory, CheckpointPointer pointer, int64_t step,
                                  const std::string& unique) {
  const std::string path = PointerPath(run_directory, pointer);
  const std::string temporary = absl::StrCat(path, ".", unique);
  const std::string target = CheckpointName(step);
  HADAL_RETURN_IF_ERROR(RemoveTree(temporary));
  if (symlink(target.c_str(), temporary.c_str()) != 0) {
    // File systems without symbolic links (FAT, some object stores) say EPERM or ENOTSUP.
    if (errno != EPERM && errno != ENOTSUP) return ErrnoStatus(errno, "make the link", temporary);
    return ReplaceFile(path, target + "\n", unique);
  }
  if (absl::Status status = RenamePath(temporary, path); !status.ok()) {
    unlink(temporary.c_str());
    return status;
  }
  return SyncDirectory(CheckpointsDirectory(run_directory));
}

absl::Status ApplyRetention(const std::string& run_directory, const RetentionPolicy& policy) {
  if (policy.keep_last == 0) return absl::OkStatus();
  HADAL_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries, ListCheckpoints(run_directory));
  HADAL_ASSIGN_OR_RETURN(const std::set<int64_t> protected_steps, ProtectedSteps(run_directory));
  absl::Status first_error;
  for (size_t i = 0; i + static_cast<size_t>(policy.keep_last) < entries.size(); ++i) {
    const CheckpointEntry& entry = entries[i];
    const bool milestone = policy.keep_every > 0 && entry.step % policy.keep_every == 0;
    if (milestone || protected_steps.contains(entry.step)) continue;
    // Renamed first: a crash halfway leaves nothing that looks like a checkpoint.
    const std::string doomed = entry.directory + kRemoved;
    absl::Status status = RemoveTree(doomed);
    if (status.ok()) status = RenamePath(entry.directory, doomed);
    if (status.ok()) status = RemoveTree(doomed);
    first_error.Update(status);
  }
  return first_error;
}

namespace {

// `best` after the checkpoints behind `step` are gone: what was best when `step` was saved, where that is still there.
absl::Status TakeBestBack(const std::string& run_directory, int64_t step, const std::string& unique) {
  const absl::StatusOr<int64_t> best = ReadCheckpointPointer(run_directory, CheckpointPointer::kBest);
  if (!best.ok() || *best <= step) return absl::OkStatus();
  const auto directory = [&](int64_t of) { return JoinPath(CheckpointsDirectory(run_directory), CheckpointName(of)); };
  const auto reader = CheckpointReader::Open(directory(step));
  if (!reader.ok() && !IsDamage(reader.status())) return reader.status();
  if (reader.ok()) {
    const int64_t former = reader->manifest().progress.best_step;
    if (former >= 0 && PathExists(directory(former))) {
      return SetCheckpointPointer(run_directory, CheckpointPointer::kBest, former, unique);
    }
  }
  return RemoveTree(PointerPath(run_directory, CheckpointPointer::kBest));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> SetAsideLaterCheckpoints(const std::string& run_directory, int64_t step,
                                                                  const std::string& unique) {
  HADAL_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries, ListCheckpoints(run_directory));
  std::vector<std::string> moved;
  for (const CheckpointEntry& entry : entries) {
    if (entry.step == step) {
      HADAL_RETURN_IF_ERROR(SetCheckpointPointer(run_directory, CheckpointPointer::kLatest, step, unique));
    }
    if (entry.step <= step) continue;
    moved.push_back(absl::StrCat(entry.directory, ".abandoned.", unique));
    HADAL_RETURN_IF_ERROR(RenamePath(entry.directory, moved.back()));
  }
  HADAL_RETURN_IF_ERROR(TakeBestBack(run_directory, step, unique));
  if (!moved.empty()) HADAL_RETURN_IF_ERROR(SyncDirectory(CheckpointsDirectory(run_directory)));
  return moved;
}

absl::StatusOr<FoundCheckpoint> FindLatest(const std::string& run_directory, const FindOptions& options) {
  HADAL_ASSIGN_OR_RETURN(std::vector<CheckpointEntry> entries, ListCheckpoints(run_directory));
  std::erase_if(entries, [&](const CheckpointEntry& entry) { return entry.step >= options.before_step; });
  if (entries.empty()) {
    return absl::NotFoundError(absl::StrCat("there is no checkpoint in ", CheckpointsDirectory(run_directory)));
  }
  FoundCheckpoint found;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    absl::Status status = CheckCheckpoint(entry->directory, options);
    if (status.ok()) {
      found.checkpoint = *entry;
      return found;
    }
    if (!IsDamage(status)) return NotPassedOver(entry->directory, status);
    found.rejected.push_back({.directory = entry->directory, .reason = std::move(status)});
  }
  std::string reasons;
  for (const RejectedCheckpoint& bad : found.rejected) {
    absl::StrAppend(&reasons, "\n  ", bad.directory, ": ", bad.reason.message());
  }
  return absl::DataLossError(absl::StrCat(
      "no checkpoint in ", CheckpointsDirectory(run_directory), " can be used:", reasons,
      "\n  Put a good copy of one in its place; without one, only a new run, in a directory of its own, is left"));
}

}  // namespace hadal
