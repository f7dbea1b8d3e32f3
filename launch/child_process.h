// Runs a command without input or output; returns its exit code.
//
// The child runs in its own session, so a terminal's Ctrl-C does not reach it. If the parent dies, the child is killed.
// It reports nothing to a supervisor of the parent (job_report.h).
// Threads: one at a time.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace hadal {

class ChildProcess {
 public:
  // Searches PATH for the first word of `command`. A command that cannot be run ends with exit code 2.
  // Errors: no process can be created.
  static absl::StatusOr<ChildProcess> Start(const std::vector<std::string>& command);
  ChildProcess(ChildProcess&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  // Kills the child and its process group (SIGKILL) if it is still running.
  ~ChildProcess();

  // The first call after the child has ended returns its exit code, 128 + n if signal n ended it; every other call
  // returns nullopt. Does not block.
  std::optional<int> Poll();

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}

  pid_t pid_ = -1;  // -1: Poll has returned the end
};

}  // namespace hadal
