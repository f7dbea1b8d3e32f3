#include "pipeline/checkpoint/checkpoint_directory.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
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
  return absl::Status(error.code(),
                      absl::StrCat(error.message(), "\n  The checkpoint ", directory,
                                   " may be good all the same, so no older one takes its place. Mend this and "
                                   "start again; or move that directory away to do without it"));
}

// Goes through the list once. Also returns Aborted if a listed checkpoint is no longer there.
absl::StatusOr<CheckpointReader> Search(const std::string& run_directory, const FindOptions& options,
                                        std::vector<RejectedCheckpoint>& rejected) {
  HADAL_ASSIGN_OR_RETURN(std::vector<CheckpointEntry> entries, ListCheckpoints(run_directory));
  std::erase_if(entries, [&](const CheckpointEntry& entry) { return entry.step >= options.before_step; });
  if (entries.empty()) {
    return absl::NotFoundError(absl::StrCat("there is no checkpoint in ", CheckpointsDirectory(run_directory)));
  }
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    absl::StatusOr<CheckpointReader> reader = CheckpointReader::Open(entry->directory);
    if (absl::IsNotFound(reader.status())) return absl::AbortedError(reader.status().message());
    if (reader.ok() && options.need_moments && !reader->manifest().has_moments) {
      reader = absl::DataLossError("it holds weights only, without Adam's moments");
    }
    if (reader.ok()) return reader;
    if (!IsDamage(reader.status())) return NotPassedOver(entry->directory, reader.status());
    rejected.push_back({.directory = entry->directory, .reason = reader.status()});
  }
  std::string reasons;
  for (const RejectedCheckpoint& bad : rejected) {
    absl::StrAppend(&reasons, "\n  ", bad.directory, ": ", bad.reason.message());
  }
  return absl::DataLossError(absl::StrCat(
      "no checkpoint in ", CheckpointsDirectory(run_directory), " can be used:", reasons,
      "\n  Put a good copy of one in its place; without one, only a new run, in a directory of its own, is left"));
}

}  // namespace

std::string CheckpointPointerPath(const std::string& run_directory, CheckpointPointer pointer) {
  return JoinPath(CheckpointsDirectory(run_directory), pointer == CheckpointPointer::kLatest ? kLatestName : kBestName);
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
  const std::string path = CheckpointPointerPath(run_directory, pointer);
  HADAL_ASSIGN_OR_RETURN(const std::string target, PointerTarget(path));
  const std::optional<int64_t> step = ParseCheckpointName(target);
  if (!step) {
    return absl::DataLossError(absl::StrCat(path, " names \"", target,
                                            "\", which is no checkpoint of this run; "
                                            "remove it, or link it to a step_* directory beside it"));
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
  return absl::NotFoundError(absl::StrCat(path, " is neither a checkpoint (no ", kManifestName,
                                          ") nor a run directory (no ", kCheckpointsName, "/)"));
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

}  // namespace hadal
