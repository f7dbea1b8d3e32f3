#include "launch/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "launch/exit_code.h"
#include "launch/job_report.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

// Runs between fork and exec: only async-signal-safe calls.
[[noreturn]] void BecomeChild(char* const* words, int null, pid_t parent) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);  // the supervisor blocks signals
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kExitError);  // it ended before the line above
  dup2(null, STDIN_FILENO);
  dup2(null, STDOUT_FILENO);
  dup2(null, STDERR_FILENO);
  execvp(words[0], words);
  _exit(kExitUsage);
}

}  // namespace

absl::StatusOr<ChildProcess> ChildProcess::Start(const std::vector<std::string>& command) {
  const FileDescriptor null(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null.valid()) return ErrnoStatus(errno, "open", "/dev/null");
  std::vector<char*> words;
  words.reserve(command.size() + 1);
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  unsetenv(kReportVariable);
  const pid_t self = getpid();
  const pid_t pid = fork();
  if (pid < 0) return InternalError("cannot start a process: ", std::strerror(errno));
  if (pid == 0) BecomeChild(words.data(), null.get(), self);
  return ChildProcess(pid);
}

ChildProcess::~ChildProcess() {
  if (pid_ < 0) return;
  kill(-pid_, SIGKILL);  // its group, if it has one already
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  while (waitpid(-pid_, nullptr, 0) > 0) continue;  // the rest of its group, if this is a subreaper
}

std::optional<int> ChildProcess::Poll() {
  int status = 0;
  const pid_t ended = pid_ < 0 ? 0 : waitpid(pid_, &status, WNOHANG);
  if (ended != pid_ || ended <= 0) return std::nullopt;
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : kSignalExit + WTERMSIG(status);
}

}  // namespace hadal
