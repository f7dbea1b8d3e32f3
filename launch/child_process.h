// A command as a child process, with its output in a file and an eye on what it cost.
//
// The child runs in a session of its own, so that a terminal's Ctrl-C reaches its parent only, which asks it to stop.
// When the parent dies, the child gets SIGUSR1: a training run saves and ends.
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
  int exit_code = 0;       // 128 + n when signal n ended it
  double cpu_seconds = 0;  // user and system, of the child and the descendants it waited for
};

class ChildProcess {
 public:
  // `command`'s first word is looked up in PATH; standard output and error are appended to `log`.
  // Errors: the log cannot be opened, no process can be made. A command that cannot be run ends with exit code 2.
  static absl::StatusOr<ChildProcess> Start(const std::vector<std::string>& command, const std::string& log);
  ChildProcess(ChildProcess&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  // Kills a child that still runs.
  ~ChildProcess();

  // The child's end, once; nothing while it runs. Does not block.
  std::optional<ChildEnd> Poll();
  // SIGUSR1. REQUIRES: Poll() has not told its end.
  void AskToStop();

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}

  pid_t pid_ = -1;  // -1: ended
};

}  // namespace hadal
