// Outputs that appear whole or not at all, each written by one process at a time.
//
// OutputFolder locks a folder into which a command writes: FOLDER/.hadal.lock, as runtime/locked_file.h, removed at
// the end. StagedOutput writes a file or folder TARGET beside it, in the folder TARGET.partial, which is locked, too.
// SIGINT, SIGTERM and SIGHUP, where they have their default effect, then remove the lock and the folder before they
// end the process. What a killed process left is used or removed by the next one.
// Thread safety: one thread at a time. Blocking: all.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/files.h"

namespace hadal {

// A path that is removed if a signal ends the process while the object lives. Does not remove it otherwise.
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
