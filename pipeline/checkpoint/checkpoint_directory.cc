#include "pipeline/checkpoint/checkpoint_directory.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "pipeline/checkpoint/checkpoint_reader.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr int64_t kMaxPointerBytes = 256;

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

absl::StatusOr<FoundCheckpoint> FindNamed(const std::string& directory) {
  HADAL_ASSIGN_OR_RETURN(const CheckpointReader reader, CheckpointReader::Open(directory));
  return FoundCheckpoint{.checkpoint = {.step = reader.manifest().progress.step, .directory = directory},
                         .manifest = reader.manifest()};
}

absl::StatusOr<FoundCheckpoint> FindLatest(const std::string& run_directory, const FindOptions& options) {
  HADAL_ASSIGN_OR_RETURN(std::vector<CheckpointEntry> entries, ListCheckpoints(run_directory));
  std::erase_if(entries, [&](const CheckpointEntry& entry) { return entry.step >= options.before_step; });
  if (entries.empty()) {
    return absl::NotFoundError(absl::StrCat("there is no checkpoint in ", CheckpointsDirectory(run_directory)));
  }
  std::vector<RejectedCheckpoint> rejected;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    absl::StatusOr<FoundCheckpoint> found = FindNamed(entry->directory);
    if (found.ok() && options.need_moments && !found->manifest.has_moments) {
      found = absl::NotFoundError("it holds weights only, without Adam's moments");
    }
    if (found.ok()) {
      found->rejected = std::move(rejected);
      return found;
    }
    if (!IsDamage(found.status())) return NotPassedOver(entry->directory, found.status());
    rejected.push_back({.directory = entry->directory, .reason = found.status()});
  }
  std::string reasons;
  for (const RejectedCheckpoint& bad : rejected) {
    absl::StrAppend(&reasons, "\n  ", bad.directory, ": ", bad.reason.message());
  }
  return absl::DataLossError(absl::StrCat(
      "no checkpoint in ", CheckpointsDirectory(run_directory), " can be used:", reasons,
      "\n  Put a good copy of one in its place; without one, only a new run, in a directory of its own, is left"));
}

}  // namespace hadal
