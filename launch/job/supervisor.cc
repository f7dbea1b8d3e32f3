#include "launch/job/supervisor.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "launch/job/exit_code.h"
#include "launch/job/process_session.h"
#include "launch/job/time_limit.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr int kSignalExit = 128;  // exit code of a shell and of mpirun for "ended by signal n": 128 + n
// Timeout for the end of killed processes: a few seconds if they release much memory.
constexpr absl::Duration kLeftOversPatience = absl::Seconds(30);

// Returns the value of `option` among the words of a command, in either spelling.
std::optional<std::string> OptionValue(const std::vector<std::string>& command, const std::string& option) {
  std::optional<std::string> value;
  for (size_t i = 0; i < command.size(); ++i) {
    if (command[i] == option && i + 1 < command.size()) value = command[i + 1];
    if (absl::StartsWith(command[i], option + "=")) value = command[i].substr(option.size() + 1);
  }
  return value;
}

// A host is lost after 5 seconds of silence and 3 unanswered probes, 2 seconds apart: 11 seconds. Open MPI's defaults:
// eight minutes.
void SetKeepalive() {
  setenv("OMPI_MCA_oob_tcp_keepalive_time", "5", /*overwrite=*/0);
  setenv("OMPI_MCA_oob_tcp_keepalive_intvl", "2", /*overwrite=*/0);
  setenv("OMPI_MCA_oob_tcp_keepalive_probes", "3", /*overwrite=*/0);
}

[[noreturn]] void BecomeJob(const std::vector<std::string>& command, pid_t supervisor) {
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != supervisor) _exit(kExitPeerLost);  // it died before the line above
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) ::signal(signal, SIG_DFL);
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

// One supervised command. Its tries share the signals received.
class Supervisor {
 public:
  Supervisor(const SupervisorOptions& options, std::ostream& log) : options_(options), log_(log) {
    sigemptyset(&signals_);
    for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD}) sigaddset(&signals_, signal);
    struct sigaction hangup = {};
    sigaction(SIGHUP, nullptr, &hangup);
    if (hangup.sa_handler != SIG_IGN) sigaddset(&signals_, SIGHUP);  // else nohup: the job outlives its terminal
    sigprocmask(SIG_BLOCK, &signals_, &before_);
    // Orphans of the job become children of this process and can be waited for.
    prctl(PR_SET_CHILD_SUBREAPER, 1);
  }
  ~Supervisor() { sigprocmask(SIG_SETMASK, &before_, nullptr); }

  absl::StatusOr<int> Run() {
    const std::string run_directory = OptionValue(options_.command, "--run-dir").value_or("run");
    int64_t newest = LatestStep(run_directory);
    int fruitless = 0;
    while (true) {
      HADAL_ASSIGN_OR_RETURN(const int code, RunOnce());
      if (!IsCrash(code)) return code;
      // USR1 arrived before the job had installed its handler and ended it: nothing is lost.
      if (stopping() && orders_ < 2 && code == kSignalExit + SIGUSR1) return kExitRequeue;
      const int64_t step = LatestStep(run_directory);
      fruitless = step > newest ? 0 : fruitless + 1;
      newest = std::max(step, newest);
      if (stopping() || fruitless >= options_.tries) {
        log_ << "hadal supervise: the job ended with exit code " << code
             << (stopping() ? "" : absl::StrCat(", ", fruitless, " time(s) in a row without a newer checkpoint"))
             << std::endl;
        return code == kExitHang ? kExitHang : kExitPeerLost;
      }
      log_ << "hadal supervise: the job crashed (exit code " << code << "); starting it again from "
           << (newest < 0 ? "the beginning" : absl::StrCat("step ", newest)) << std::endl;
    }
  }

 private:
  static bool IsCrash(int code) { return code == kExitHang || code == kExitPeerLost || code >= kSignalExit; }
  bool stopping() const { return asked_ || orders_ > 0; }
  // Converts a launcher's exit code. MPICH's mpirun returns the bare number of the signal that ended a rank, which is
  // not one of hadal's codes; others return 128 + signal.
  static int FromLauncher(int code) { return code > kExitPeerLost && code < SIGSYS ? kSignalExit + code : code; }

  static int64_t LatestStep(const std::string& run_directory) {
    return ReadCheckpointPointer(run_directory, CheckpointPointer::kLatest).value_or(-1);
  }

  absl::StatusOr<int> RunOnce() {
    const pid_t self = getpid();
    job_ = fork();
    if (job_ < 0) return absl::InternalError(absl::StrCat("cannot start a process: ", std::strerror(errno)));
    if (job_ == 0) BecomeJob(options_.command, self);
    std::optional<int> code;
    while (!code.has_value()) {
      // Wakes once a second, to remind a job that was asked to stop while it was still starting.
      const timespec second = {.tv_sec = 1, .tv_nsec = 0};
      const int signal = sigtimedwait(&signals_, nullptr, &second);
      // Only INT and TERM escalate: a closed terminal sends HUP twice, from its shell and from the kernel.
      if (signal == SIGUSR1 || signal == SIGHUP) asked_ = true;
      if (signal == SIGINT || signal == SIGTERM) ++orders_;
      if (signal != SIGCHLD && stopping()) kill(job_, orders_ > 2 ? SIGKILL : orders_ == 2 ? SIGTERM : SIGUSR1);
      code = Reap();
    }
    return *code;
  }

  // Reaps children that have ended. Returns the exit code if the job is among them.
  std::optional<int> Reap() {
    while (true) {
      siginfo_t ended = {};
      if (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid == 0) return std::nullopt;
      // While the job's pid is not reaped, it cannot name another session.
      if (ended.si_pid == job_) EndLeftOvers();
      waitpid(ended.si_pid, nullptr, 0);
      if (ended.si_pid != job_) continue;
      return ended.si_code == CLD_EXITED ? FromLauncher(ended.si_status) : kSignalExit + ended.si_status;
    }
  }

  // Kills the rest of the ended job: the next start may need its memory and its locks.
  void EndLeftOvers() {
    const SessionEnd end = EndSession(job_, kLeftOversPatience);
    if (end.killed > 0) {
      log_ << "hadal supervise: ended " << end.killed << " process(es) that the job left behind" << std::endl;
    }
    if (end.living > 0) {
      log_ << "hadal supervise: " << end.living << " of them still exist after "
           << absl::FormatDuration(kLeftOversPatience)
           << " and may hold memory and locks: a file server that does not answer, or a driver, keeps them (ps -e -o "
              "pid,stat,wchan:30,cmd); continuing without waiting for them"
           << std::endl;
    }
  }

  const SupervisorOptions& options_;
  std::ostream& log_;
  sigset_t signals_, before_;
  pid_t job_ = -1;
  bool asked_ = false;  // to stop, by USR1 or HUP
  int orders_ = 0;      // to stop, by INT or TERM
};

}  // namespace

absl::StatusOr<int> Supervise(const SupervisorOptions& options, std::ostream& log) {
  if (options.command.empty()) {
    return absl::InvalidArgumentError(
        "no command; for example: hadal supervise -- mpirun -n 2 hadal train run.textproto");
  }
  if (OptionValue(options.command, "--resume") == "never") {
    const std::string run_directory = OptionValue(options.command, "--run-dir").value_or("run");
    return absl::InvalidArgumentError(absl::StrCat(
        "--resume never would start over after a crash wherever rank 0 does not see HADAL_JOB_START; leave it out and "
        "give a fresh --run-dir, or move ",
        CheckpointsDirectory(run_directory), " away"));
  }
  SetKeepalive();
  MarkJobStart();
  return Supervisor(options, log).Run();
}

}  // namespace hadal
