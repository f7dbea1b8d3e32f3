// Outputs that appear whole or not at all, each written by one process at a time.
//
// OutputFolder locks a folder into which a command writes: FOLDER/.hadal.lock, as runtime/locked_file.h, removed at
// the end. StagedOutput writes a file or folder TARGET beside it, in the folder TARGET.partial, which is locked, too.
// SIGINT, SIGTERM and SIGHUP, where they have their default effect, then remove the lock and the folder before they
// end the process. What a killed process left is used or removed by the next one.
// Thread safety: one thread at a time. Blocking: all.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/files.h"

namespace hadal {

// What an output may replace and where it may be. Every command checks its outputs by these rules before its work.
//
//   what has the output's name                         result
//   nothing, or an empty file                          is written
//   a file that the command has written                is replaced: `is_own` recognises it by its content
//   any other file                                     AlreadyExists
//   an input of the command, under any name            InvalidArgument
//   a symbolic link                                    FailedPrecondition: links are not followed
//   a directory, a device or a pipe                    FailedPrecondition
// InvalidArgument: a place inside a checkpoint, or inside a run directory with one of the names that hadal uses there.
// Directories above the output may be links. Thread safety: any thread. Blocking: reads directories and files.
struct OutputRules {
  std::vector<std::string> inputs;
  // Whether the command has written a file with this content (its first 64 KiB). Null: no.
  std::function<bool(std::string_view content)> is_own;
  const char* remedy = "remove it, or choose another --out";  // of AlreadyExists
};

// Whether the directory is itself a checkpoint.
bool IsCheckpoint(const std::string& directory);
// Checks the place of an output file or folder alone (InvalidArgument, as above).
absl::Status CheckPlace(const std::string& path);
// Checks a file by all rules.
absl::Status CheckOutput(const std::string& path, const OutputRules& rules);
// Checks files and folders that a command writes together: if any of them exists, the first of
// `paths` must be a file that `rules.is_own` recognises. None may be a link.
absl::Status CheckOutputs(const std::vector<std::string>& paths, const OutputRules& rules);

// A path that is removed if a signal ends the process while the object exists. Does not remove it otherwise.
class RemovedOnSignal {
 public:
  explicit RemovedOnSignal(std::string path);
  RemovedOnSignal(RemovedOnSignal&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  ~RemovedOnSignal();

 private:
  std::string path_;  // "": moved
};

class OutputFolder {
 public:
  // Makes the folder if it is missing, and locks it until the object is destroyed.
  // Errors: Aborted, naming the folder, if another process has it; those of CheckPlace and of files.
  static absl::StatusOr<OutputFolder> Take(const std::string& folder);
  OutputFolder(OutputFolder&&) = default;
  ~OutputFolder();

 private:
  OutputFolder(FileDescriptor lock, std::string path)
      : lock_(std::move(lock)), path_(std::move(path)), removal_(path_) {}

  FileDescriptor lock_;  // invalid: moved
  std::string path_;     // of the lock
  RemovedOnSignal removal_;
};

class StagedOutput {
 public:
  // Makes TARGET's directory and TARGET.partial.
  // Errors: Aborted if another process is writing TARGET; AlreadyExists if TARGET.partial is not hadal's; those of
  // CheckPlace and of files.
  static absl::StatusOr<StagedOutput> Begin(const std::string& target);
  StagedOutput(StagedOutput&&) = default;
  ~StagedOutput();

  // The path of a file or folder in TARGET.partial.
  std::string Path(const std::string& name) const { return JoinPath(folder_, name); }
  // Renames Path(name) to `path`, durably.  Errors: AlreadyExists if that exists, unless `replace`; those of renaming.
  absl::Status Publish(const std::string& name, const std::string& path, bool replace = false) const;

 private:
  StagedOutput(FileDescriptor lock, std::string folder)
      : lock_(std::move(lock)), folder_(std::move(folder)), removal_(folder_) {}

  FileDescriptor lock_;  // invalid: moved
  std::string folder_;
  RemovedOnSignal removal_;
};

}  // namespace hadal
