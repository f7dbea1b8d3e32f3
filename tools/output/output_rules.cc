#include "tools/output/output_rules.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr int64_t kMostRecognised = 64 << 10;

// Names of a run directory that only the run writes.
constexpr const char* kRunNames[] = {kResolvedConfigName, kProfileName,    kMachineName, kMetricsName,
                                     kTensorBoardName,    kLogsName,       kTracesName,  kDepthProbeName,
                                     kComparedCellName,   kCheckpointsName};

bool IsRun(const std::string& directory) {
  return PathExists(JoinPath(directory, kMetricsName)) || PathExists(JoinPath(directory, kResolvedConfigName)) ||
         PathExists(JoinPath(CheckpointsDirectory(directory), kAttemptName));
}

bool IsCheckpoint(const std::string& directory) {
  return PathExists(JoinPath(directory, kManifestName)) && PathExists(JoinPath(directory, RankFileName(0)));
}

absl::Status Foreign(const std::string& path, const OutputRules& rules) {
  return absl::AlreadyExistsError(absl::StrCat(path, " already exists; ", rules.remedy));
}

absl::Status CheckNoLink(const std::string& path) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0 || !S_ISLNK(info.st_mode)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "cannot write ", path, ": it is a symbolic link, which outputs do not follow; name the file itself"));
}

// Whether `path` is a file that rules.is_own recognises.
bool IsOwn(const std::string& path, const OutputRules& rules) {
  const absl::StatusOr<FileDescriptor> file = OpenFile(path);
  if (!file.ok() || !rules.is_own) return false;
  const absl::StatusOr<int64_t> bytes = FileBytes(*file, path);
  std::string content(bytes.ok() ? static_cast<size_t>(std::min(*bytes, kMostRecognised)) : 0, '\0');
  return ReadAt(*file, 0, std::ssize(content), content.data(), path).ok() && rules.is_own(content);
}

}  // namespace

absl::Status CheckPlace(const std::string& path) {
  std::error_code error;
  std::filesystem::path at = std::filesystem::weakly_canonical(DirectoryName(path), error) / BaseName(path);
  for (bool is_output = true; at.has_relative_path(); at = at.parent_path(), is_output = false) {
    if (!is_output && IsCheckpoint(at)) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot write ", path, ": ", at.native(),
                       " is a checkpoint, which nothing may change; choose another place"));
    }
    const bool is_run_name = std::ranges::find(kRunNames, at.filename()) != std::end(kRunNames);
    if (is_run_name && IsRun(at.parent_path())) {
      return absl::InvalidArgumentError(absl::StrCat("cannot write ", path, ": ", at.native(), " is the run's in ",
                                                     at.parent_path().native(), "; choose another place"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckOutput(const std::string& path, const OutputRules& rules) {
  HADAL_RETURN_IF_ERROR(CheckNoLink(path));
  HADAL_RETURN_IF_ERROR(CheckCreatable(path));
  HADAL_RETURN_IF_ERROR(CheckIsNoneOf(path, rules.inputs));
  HADAL_RETURN_IF_ERROR(CheckPlace(path));
  struct stat info;
  const bool is_free = stat(path.c_str(), &info) != 0 || info.st_size == 0;
  return is_free || IsOwn(path, rules) ? absl::OkStatus() : Foreign(path, rules);
}

absl::Status CheckOutputs(const std::vector<std::string>& paths, const OutputRules& rules) {
  const bool is_own = IsOwn(paths[0], rules);
  for (const std::string& path : paths) {
    HADAL_RETURN_IF_ERROR(CheckNoLink(path));
    HADAL_RETURN_IF_ERROR(CheckIsNoneOf(path, rules.inputs));
    HADAL_RETURN_IF_ERROR(CheckPlace(path));
    if (!is_own && PathExists(path)) return Foreign(path, rules);
  }
  return absl::OkStatus();
}

}  // namespace hadal
