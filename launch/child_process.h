// Runs a command with its output in a file; returns its exit code and CPU time.
//
// The child runs in its own session, so a terminal's Ctrl-C reaches only the parent, which then asks the child to stop.
// If the parent dies, the child gets SIGUSR1: a training run then saves and ends. The child reports nothing to a
// supervisor of the parent (job_report.h), because the parent judges how the child ended.
// Threads: one at a time.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace hadal {

struct ChildEnd {
  int exit_code = 0;       // 128 + n if signal n ended the child
  double cpu_seconds = 0;  // user and system time of the child and the descendants it waited for
};

class ChildProcess {
 public:
  // Searches PATH for the first word of `command`; appends standard output and error to `log`.
  // Errors: the log cannot be opened; no process can be created. A command that cannot be run ends with exit code 2.
  static absl::StatusOr<ChildProcess> Start(const std::vector<std::string>& command, const std::string& log);
  ChildProcess(ChildProcess&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  // Kills the child and its process group (SIGKILL) if it is still running.
  ~ChildProcess();

  // The first call after the child has ended returns how it ended; every other call returns nullopt. Does not block.
  std::optional<ChildEnd> Poll();
  // Sends SIGUSR1. REQUIRES: Poll() has not returned the end.
  void AskToStop();

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}

  pid_t pid_ = -1;  // -1: Poll has returned the end
};

}  // namespace hadal
