#include "pipeline/checkpoint/checkpoint_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <random>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "runtime/check.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr int64_t kMaxClaimBytes = 256;
constexpr char kReplaced[] = ".replaced.";

std::string ClaimPath(const std::string& run_directory) {
  return JoinPath(CheckpointsDirectory(run_directory), "attempt");
}

// The names in `parent` that are a checkpoint's temporary directory or a pointer's temporary link.
bool IsLeftover(const std::string& name) {
  return (absl::StartsWith(name, "step_") && absl::StrContains(name, ".tmp.")) || absl::StartsWith(name, "latest.") ||
         absl::StartsWith(name, "best.") || absl::StartsWith(name, "attempt.");
}

// A checkpoint that was stepping aside for a newer one of the same step when its process ended: goes back to its place
// if the newer one did not get there.
absl::Status SettleReplaced(const std::string& parent, const std::string& name) {
  const std::string original = name.substr(0, name.find(kReplaced));
  if (!ParseCheckpointName(original)) return absl::OkStatus();
  const std::string path = JoinPath(parent, name);
  return PathExists(JoinPath(parent, original)) ? RemoveTree(path) : RenamePath(path, JoinPath(parent, original));
}

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

std::string NewCheckpointAttempt() {
  std::random_device random;
  return absl::StrFormat("%x-%x-%08x", absl::ToUnixSeconds(absl::Now()), getpid(), random());
}

CheckpointWriter::CheckpointWriter(CheckpointWriterOptions options) : options_(std::move(options)) {
  HADAL_CHECK(IsPlainFileName(options_.attempt));
}

std::string CheckpointWriter::TemporaryDirectory(int64_t step) const {
  return JoinPath(CheckpointsDirectory(options_.run_directory),
                  absl::StrCat(CheckpointName(step), ".tmp.", options_.attempt));
}

absl::Status CheckpointWriter::Claim() {
  const std::string parent = CheckpointsDirectory(options_.run_directory);
  HADAL_RETURN_IF_ERROR(MakeDirectories(parent));
  HADAL_RETURN_IF_ERROR(SyncDirectory(options_.run_directory));  // where `parent` may be new
  HADAL_RETURN_IF_ERROR(ReplaceFile(ClaimPath(options_.run_directory), options_.attempt + "\n", options_.attempt));
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(parent));
  for (const std::string& name : names) {
    if (IsLeftover(name)) HADAL_RETURN_IF_ERROR(RemoveTree(JoinPath(parent, name)));
    if (absl::StrContains(name, kReplaced)) HADAL_RETURN_IF_ERROR(SettleReplaced(parent, name));
  }
  return absl::OkStatus();
}

absl::Status CheckpointWriter::CheckClaim() const {
  HADAL_ASSIGN_OR_RETURN(const std::string claim, ReadFile(ClaimPath(options_.run_directory), kMaxClaimBytes));
  if (claim == options_.attempt + "\n") return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("this launch (", options_.attempt, ") may no longer save into ",
                                         options_.run_directory, ": a later one (", claim.substr(0, claim.find('\n')),
                                         ") has taken it over; stop one of the two jobs"));
}

absl::StatusOr<WrittenFile> CheckpointWriter::WriteRankFile(int64_t step, int rank, std::span<const SliceState> slices,
                                                            const WriteSlice& write) {
  std::vector<CheckpointFileWriter::Entry> entries;
  entries.reserve(slices.size());
  for (const SliceState& slice : slices) {
    CheckpointFileWriter::Entry& entry = entries.emplace_back();
    entry.parameter = slice.parameter;
    entry.slice = slice.slice;
    for (const StateKind kind : kStateKinds) entry.kinds[static_cast<size_t>(kind)] = !slice.view(kind).empty();
  }
  const std::string directory = TemporaryDirectory(step);
  HADAL_RETURN_IF_ERROR(MakeDirectories(directory));
  HADAL_ASSIGN_OR_RETURN(CheckpointFileWriter writer, CheckpointFileWriter::Create({.directory = directory,
                                                                                    .rank = rank,
                                                                                    .step = step,
                                                                                    .plan_hash = options_.plan_hash,
                                                                                    .parameters = &options_.parameters},
                                                                                   entries));
  const AppendSlice append = [&](const SliceState& slice) { return writer.Append(slice); };
  for (size_t i = 0; i < slices.size(); ++i) HADAL_RETURN_IF_ERROR(write(i, append));
  return writer.Finish();
}

absl::Status CheckpointWriter::PrepareCommit(const CommitRequest& request) {
  const std::string directory = TemporaryDirectory(request.progress.step);
  HADAL_RETURN_IF_ERROR(MakeDirectories(directory));
  return CompleteCheckpointDirectory(directory,
                                     {.progress = request.progress,
                                      .plan_hash = options_.plan_hash,
                                      .attempt = options_.attempt,
                                      .time = absl::Now(),
                                      .config_text = request.config_text,
                                      .model_settings = request.model_settings,
                                      .parameters = options_.parameters,
                                      .files = request.files,
                                      .attachments = {}},
                                     request.attachments);
}

absl::StatusOr<CommitResult> CheckpointWriter::Commit(const CommitRequest& request) {
  const int64_t step = request.progress.step;
  const std::string parent = CheckpointsDirectory(options_.run_directory);
  const std::string temporary = TemporaryDirectory(step);
  const std::string aside = JoinPath(parent, absl::StrCat(CheckpointName(step), kReplaced, options_.attempt));
  absl::Cleanup remove_temporary = [&] { Abandon(step).IgnoreError(); };

  HADAL_RETURN_IF_ERROR(PrepareCommit(request));
  HADAL_RETURN_IF_ERROR(CheckClaim());
  CommitResult result = {.directory = JoinPath(parent, CheckpointName(step)), .retention = {}};
  HADAL_RETURN_IF_ERROR(ReplaceDirectory(temporary, result.directory, aside));
  std::move(remove_temporary).Cancel();
  HADAL_RETURN_IF_ERROR(SyncDirectory(parent));
  HADAL_RETURN_IF_ERROR(
      SetCheckpointPointer(options_.run_directory, CheckpointPointer::kLatest, step, options_.attempt));
  if (request.is_best) {
    HADAL_RETURN_IF_ERROR(
        SetCheckpointPointer(options_.run_directory, CheckpointPointer::kBest, step, options_.attempt));
  }
  result.retention = RemoveTree(aside);
  result.retention.Update(ApplyRetention(options_.run_directory, options_.retention));
  return result;
}

absl::Status CheckpointWriter::Abandon(int64_t step) { return RemoveTree(TemporaryDirectory(step)); }

}  // namespace hadal
