#include "launch/guardian.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launch/exit_code.h"
#include "launch/process_tree.h"
#include "runtime/clock.h"

namespace hadal {
namespace {

constexpr int kSignalExit = 128;  // exit code for "ended by signal n": 128 + n
// Timeout for the end of killed processes: a few seconds if they release much memory.
constexpr absl::Duration kLeftOversPatience = absl::Seconds(30);
constexpr double kOrphanedSeconds = 10;  // from TERM to KILL for a job whose supervisor has ended
constexpr int kPollMilliseconds = 1000;
constexpr double kReportStoppedSeconds = 10;  // a process that is stopped for a moment is not worth a message

[[noreturn]] void BecomeJob(const std::vector<std::string>& command, pid_t guardian) {
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != guardian) _exit(kExitPeerLost);  // it died before the line above
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGPIPE}) ::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int null = open("/dev/null", O_RDONLY);
  if (null >= 0) dup2(null, STDIN_FILENO);
  std::vector<char*> words;
  words.reserve(command.size() + 1);
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execvp(words[0], words.data());
  dprintf(STDERR_FILENO, "hadal supervise: cannot run %s: %s\n", words[0], std::strerror(errno));
  _exit(kExitUsage);
}

// Kills what the job has left: the next start may need its memory and its locks.
void EndLeftOvers(std::ostream& log) {
  const DescendantsEnd end = EndDescendants(kLeftOversPatience);
  if (end.killed > 0) {
    log << "hadal supervise: ended " << end.killed << " process(es) that the job left behind" << std::endl;
  }
  if (end.living > 0) {
    log << "hadal supervise: " << end.living << " of them still exist after "
        << absl::FormatDuration(kLeftOversPatience)
        << " and may hold memory and locks: a file server that does not answer, or a driver, keeps them (ps -e -o "
           "pid,stat,wchan:30,cmd); continuing without waiting for them"
        << std::endl;
  }
}

// The guardian's process.
class Watch {
 public:
  Watch(const GuardedJob& job, FileDescriptor orders, std::ostream& log)
      : options_(job), orders_(std::move(orders)), log_(log) {}

  // Returns the exit code.
  int Run() {
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    const FileDescriptor ended(signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK));
    const pid_t self = getpid();
    job_ = fork();
    if (job_ < 0) {
      log_ << "hadal supervise: cannot start a process: " << std::strerror(errno) << std::endl;
      return kExitError;
    }
    if (job_ == 0) BecomeJob(options_.command, self);
    std::optional<int> code;
    while (!code.has_value()) {
      pollfd sources[] = {{.fd = orphaned_ ? -1 : orders_.get(), .events = POLLIN},
                          {.fd = ended.get(), .events = POLLIN}};
      poll(sources, 2, kPollMilliseconds);
      if (sources[0].revents != 0) OnOrder();
      signalfd_siginfo ignored = {};
      if (read(ended.get(), &ignored, sizeof(ignored)) < 0 && errno != EAGAIN) return kExitError;
      if (orphaned_ && since_orphaned_.Seconds() >= kOrphanedSeconds) Carry(GuardianOrder::kKill);
      CheckStopped();
      code = Reap();
    }
    EndLeftOvers(log_);
    std::error_code error;
    if (orphaned_ && !options_.temporary.empty()) std::filesystem::remove_all(options_.temporary, error);
    return hung_ ? kExitHang : *code;
  }

 private:
  void OnOrder() {
    char order = 0;
    const ssize_t bytes = read(orders_.get(), &order, 1);
    if (bytes == 1) return Carry(static_cast<GuardianOrder>(order));
    orphaned_ = true;  // the pipe is closed
    since_orphaned_.Restart();
    log_ << "hadal supervise: the supervisor was killed; ending the job" << std::endl;
    Carry(GuardianOrder::kTerminate);
  }

  // Carries out an order.
  void Carry(GuardianOrder order) {
    const std::vector<ProcessEntry> job = Descendants();
    if (order == GuardianOrder::kTerminate) return SignalHandlers(job, SIGTERM, job_);
    for (const ProcessEntry& process : job) {
      if (order == GuardianOrder::kKill) kill(process.pid, SIGKILL);
      if (order == GuardianOrder::kAsk && process.state == 'T') kill(process.pid, SIGCONT);
    }
    if (order == GuardianOrder::kAsk) SignalHandlers(job, SIGUSR1, job_);
  }

  // Counts intervals, not the time between two looks: a batch system may stop and continue all of them together.
  void CheckStopped() {
    const double limit = absl::ToDoubleSeconds(options_.stopped_limit);
    const double interval = std::min(limit, kReportStoppedSeconds) / 2;
    if (since_check_.Seconds() < interval) return;
    since_check_.Restart();
    const std::vector<ProcessEntry> job = Descendants();
    const auto stopped = std::ranges::find(job, 'T', &ProcessEntry::state);
    if (stopped == job.end()) {
      stopped_seconds_ = 0;
      reported_stopped_ = false;
      return;
    }
    stopped_seconds_ += interval;
    if (!reported_stopped_ && stopped_seconds_ >= interval) {
      reported_stopped_ = true;
      log_ << "hadal supervise: process " << stopped->pid << " (" << stopped->name
           << ") of the job is stopped; kill -CONT " << stopped->pid << " continues it; after "
           << absl::FormatDuration(options_.stopped_limit) << " the job counts as hung" << std::endl;
    }
    if (stopped_seconds_ < limit) return;
    hung_ = true;
    Carry(GuardianOrder::kKill);
  }

  // Reaps children that have ended. Returns the exit code if the job is among them.
  std::optional<int> Reap() {
    int status = 0;
    pid_t ended = 0;
    while ((ended = waitpid(-1, &status, WNOHANG)) > 0) {
      if (ended == job_) return WIFEXITED(status) ? WEXITSTATUS(status) : kSignalExit + WTERMSIG(status);
    }
    return std::nullopt;
  }

  const GuardedJob& options_;
  const FileDescriptor orders_;
  std::ostream& log_;
  pid_t job_ = -1;
  bool orphaned_ = false;
  Stopwatch since_orphaned_;
  Stopwatch since_check_;       // of stopped processes
  double stopped_seconds_ = 0;  // time for which one has been stopped
  bool reported_stopped_ = false, hung_ = false;
};

}  // namespace

absl::StatusOr<Guardian> Guardian::Start(const GuardedJob& job, std::ostream& log) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::InternalError(absl::StrCat("no pipe: ", std::strerror(errno)));
  FileDescriptor read_end(ends[0]), write_end(ends[1]);
  const pid_t pid = fork();
  if (pid < 0) return absl::InternalError(absl::StrCat("cannot start a process: ", std::strerror(errno)));
  if (pid > 0) return Guardian(pid, std::move(write_end), log);
  write_end = FileDescriptor();
  setsid();
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  prctl(PR_SET_NAME, "hadal guardian");
  _exit(Watch(job, std::move(read_end), log).Run());
}

void Guardian::Send(GuardianOrder order) {
  const char byte = static_cast<char>(order);
  // A guardian that is ending has closed its end; Poll reports that.
  [[maybe_unused]] const ssize_t written = write(orders_.get(), &byte, 1);
}

std::optional<int> Guardian::Poll() {
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  EndLeftOvers(*log_);
  return kSignalExit + WTERMSIG(status);
}

}  // namespace hadal
