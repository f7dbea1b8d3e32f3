#include "tools/output/staged_output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>

#include "runtime/locked_file.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr int64_t kMostRecognised = 64 << 10;

// Names of a run directory that only the run writes.
constexpr const char* kRunNames[] = {kResolvedConfigName, kProfileName,     kMachineName,     kMetricsName,
                                     kTensorBoardName,    kLogsName,        kTracesName,      kDepthProbeName,
                                     kComparedCellName,   kCheckpointsName, kIncarnationsName};

bool IsRun(const std::string& directory) {
  return PathExists(JoinPath(directory, kMetricsName)) || PathExists(JoinPath(directory, kResolvedConfigName)) ||
         PathExists(JoinPath(CheckpointsDirectory(directory), kAttemptName));
}

absl::Status Foreign(const std::string& path, const OutputRules& rules) {
  return AlreadyExistsError(path, " already exists; ", rules.remedy);
}

absl::Status CheckNoLink(const std::string& path) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0 || !S_ISLNK(info.st_mode)) return absl::OkStatus();
  return FailedPreconditionError("cannot write ", path,
                                 ": it is a symbolic link, which outputs do not follow; name the file itself");
}

// Whether `path` is a file that rules.is_own recognises.
bool IsOwn(const std::string& path, const OutputRules& rules) {
  const absl::StatusOr<FileDescriptor> file = OpenFile(path);
  if (!file.ok() || !rules.is_own) return false;
  const absl::StatusOr<int64_t> bytes = FileBytes(*file, path);
  std::string content(bytes.ok() ? static_cast<size_t>(std::min(*bytes, kMostRecognised)) : 0, '\0');
  return ReadAt(*file, 0, std::ssize(content), content.data(), path).ok() && rules.is_own(content);
}

constexpr char kLockName[] = ".hadal.lock";
int signal_pipe = -1;  // a global, because a signal handler can access nothing else

void OnEnd(int signal) {
  const int error = errno;
  const auto byte = static_cast<char>(signal);
  [[maybe_unused]] const ssize_t written = write(signal_pipe, &byte, 1);
  errno = error;
}

// The paths of all RemovedOnSignal. A thread waits for a signal, because a handler may not remove a folder.
class Removals {
 public:
  // Never destroyed: the thread does not end.
  static Removals& OfProcess() {
    static auto* const removals = new Removals;
    return *removals;
  }

  void Add(const std::string& path) {
    const std::lock_guard lock(mutex_);
    if (signal_pipe < 0) Begin();
    paths_.insert(path);
  }
  void Remove(const std::string& path) {
    const std::lock_guard lock(mutex_);  // after a signal never: the process ends here
    paths_.erase(path);
  }

 private:
  // Without a signal to wait for no thread begins: commands that handle signals themselves may fork.
  void Begin() {
    struct sigaction action = {}, before = {};
    std::vector<int> signals;
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      if (sigaction(signal, nullptr, &before) == 0 && before.sa_handler == SIG_DFL) signals.push_back(signal);
    }
    std::array<int, 2> ends;
    if (signals.empty() || pipe2(ends.data(), O_CLOEXEC) != 0) return;
    signal_pipe = ends[1];
    sigset_t all, mask;  // the thread takes no signals from those that block them
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &mask);
    std::thread([this, end = ends[0]] { Wait(end); }).detach();
    pthread_sigmask(SIG_SETMASK, &mask, nullptr);
    action.sa_handler = OnEnd;
    action.sa_flags = SA_RESTART | SA_ONSTACK | static_cast<int>(SA_RESETHAND);  // the second one ends at once
    sigemptyset(&action.sa_mask);
    for (const int signal : signals) sigaction(signal, &action, nullptr);
  }

  void Wait(int end) {
    char signal = 0;
    while (read(end, &signal, 1) != 1) {
    }
    mutex_.lock();  // for ever
    for (const std::string& path : paths_) {
      // Renamed first: of what is being published either all is removed or nothing.
      const std::string doomed = path + ".removed";
      if (rename(path.c_str(), doomed.c_str()) == 0) RemoveTree(doomed).IgnoreError();
    }
    std::signal(signal, SIG_DFL);
    kill(getpid(), signal);  // another thread takes it
  }

  std::mutex mutex_;
  std::set<std::string> paths_;
};

absl::StatusOr<FileDescriptor> Lock(const std::string& folder, const std::string& target) {
  HADAL_RETURN_IF_ERROR(CheckPlace(target));
  HADAL_RETURN_IF_ERROR(MakeDirectories(folder));
  absl::StatusOr<FileDescriptor> lock = OpenLocked(JoinPath(folder, kLockName));
  if (!absl::IsAborted(lock.status())) return lock;
  return AbortedError("another process is writing ", target, "; wait until it ends, or choose another --out");
}

absl::Status RenameNew(const std::string& from, const std::string& to) {
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return absl::OkStatus();
  if (errno == EEXIST) return AlreadyExistsError(to, " already exists; choose another --out");
  if (errno != EINVAL && errno != ENOSYS) return ErrnoStatus(errno, "create", to);
  return RenamePath(from, to);  // a file system without RENAME_NOREPLACE
}

}  // namespace

bool IsCheckpoint(const std::string& directory) {
  return PathExists(JoinPath(directory, kManifestName)) && PathExists(JoinPath(directory, RankFileName(0)));
}

absl::Status CheckPlace(const std::string& path) {
  std::error_code error;
  std::filesystem::path at = std::filesystem::weakly_canonical(DirectoryName(path), error) / BaseName(path);
  for (bool is_output = true; at.has_relative_path(); at = at.parent_path(), is_output = false) {
    if (!is_output && IsCheckpoint(at)) {
      return InvalidArgumentError("cannot write ", path, ": ", at.native(),
                                  " is a checkpoint, which nothing may change; choose another place");
    }
    const bool is_run_name = std::ranges::find(kRunNames, at.filename()) != std::end(kRunNames);
    if (is_run_name && IsRun(at.parent_path())) {
      return InvalidArgumentError("cannot write ", path, ": ", at.native(), " is the run's in ",
                                  at.parent_path().native(), "; choose another place");
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

RemovedOnSignal::RemovedOnSignal(std::string path) : path_(std::move(path)) { Removals::OfProcess().Add(path_); }

RemovedOnSignal::~RemovedOnSignal() {
  if (!path_.empty()) Removals::OfProcess().Remove(path_);
}

absl::StatusOr<OutputFolder> OutputFolder::Take(const std::string& folder) {
  HADAL_ASSIGN_OR_RETURN(FileDescriptor lock, Lock(folder, folder));
  return OutputFolder(std::move(lock), JoinPath(folder, kLockName));
}

OutputFolder::~OutputFolder() {
  if (lock_.valid()) RemoveTree(path_).IgnoreError();
}

absl::StatusOr<StagedOutput> StagedOutput::Begin(const std::string& target) {
  const std::string folder = JoinPath(DirectoryName(target), BaseName(target) + ".partial");
  const absl::StatusOr<std::vector<std::string>> before = ListDirectory(folder);
  if (before.ok() && !before->empty() && !PathExists(JoinPath(folder, kLockName))) {
    return AlreadyExistsError(folder, " already exists; remove it, or choose another --out");
  }
  HADAL_ASSIGN_OR_RETURN(FileDescriptor lock, Lock(folder, target));
  StagedOutput output(std::move(lock), folder);
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> left, ListDirectory(folder));  // by a killed process
  for (const std::string& name : left) {
    if (name != kLockName) HADAL_RETURN_IF_ERROR(RemoveTree(output.Path(name)));
  }
  return output;
}

StagedOutput::~StagedOutput() {
  if (lock_.valid()) RemoveTree(folder_).IgnoreError();
}

absl::Status StagedOutput::Publish(const std::string& name, const std::string& path, bool replace) const {
  const absl::Status renamed = replace ? RenamePath(Path(name), path) : RenameNew(Path(name), path);
  HADAL_RETURN_IF_ERROR(WithPath(renamed, Path(name), path));
  return SyncDirectory(DirectoryName(path));
}

}  // namespace hadal
