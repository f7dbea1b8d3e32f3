#include "launch/guardian.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "launch/exit_code.h"
#include "runtime/clock.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(10);

// Returns "" if the process has ended, before open(2) or, with ESRCH, between open(2) and read(2).
std::string ReadProc(pid_t pid, const char* file) {
  const absl::StatusOr<FileDescriptor> opened = OpenFile(absl::StrCat("/proc/", pid, "/", file));
  if (!opened.ok()) return "";
  std::string text;
  std::array<char, 4096> buffer{};
  ssize_t got = 0;
  while ((got = read(opened->get(), buffer.data(), buffer.size())) > 0) text.append(buffer.data(), got);
  return got < 0 ? "" : text;
}

// /proc/PID/stat is "pid (name) state ppid …", with the number of threads as the 20th word; the name may contain
// anything but its last ')'.
std::optional<ProcessEntry> ReadEntry(pid_t pid) {
  const std::string stat = ReadProc(pid, "stat");
  const size_t name = stat.find('('), name_end = stat.rfind(')');
  if (name == std::string::npos || name_end == std::string::npos) return std::nullopt;  // it has ended
  ProcessEntry entry{.pid = pid, .name = stat.substr(name + 1, name_end - name - 1)};
  std::istringstream fields(stat.substr(name_end + 1));
  fields >> entry.state >> entry.parent;
  std::string skipped;
  int threads = 1;
  constexpr int kBetween = 15;
  for (int i = 0; i < kBetween; ++i) fields >> skipped;
  fields >> threads;
  if (entry.state == 'Z' && threads > 1) entry.state = 'R';  // its other threads still hold everything
  return entry;
}

// Whether the process has a handler for the signal, or has blocked it for another thread that waits for it, as srun
// does: /proc/PID/status has the masks in hexadecimal.
bool Handles(pid_t pid, int signal) {
  const std::string status = ReadProc(pid, "status");
  const std::vector<std::string> lines = absl::StrSplit(status, '\n');
  for (const std::string& line : lines) {
    if (!absl::StartsWith(line, "SigCgt:\t") && !absl::StartsWith(line, "SigBlk:\t")) continue;
    uint64_t mask = 0;
    if (absl::SimpleHexAtoi(line.substr(8), &mask) && (mask >> (signal - 1) & 1) != 0) return true;
  }
  return false;
}

// A script that is executed directly has its own name, not its shell's.
bool IsShell(const ProcessEntry& process) {
  constexpr std::array<const char*, 5> kShells = {"bash", "sh", "dash", "zsh", "ksh"};
  std::error_code error;  // no such process, or another user's
  const std::string program =
      std::filesystem::read_symlink(absl::StrCat("/proc/", process.pid, "/exe"), error).filename().string();
  return std::ranges::any_of(kShells, [&](const char* shell) { return process.name == shell || program == shell; });
}

// Timeout for the end of killed processes: a few seconds if they release much memory.
constexpr absl::Duration kLeftOversPatience = absl::Seconds(30);
constexpr double kOrphanedSeconds = 10;  // from TERM to KILL for a job whose supervisor has ended
constexpr int kPollMilliseconds = 1000;
constexpr double kReportStoppedSeconds = 10;  // a process that is stopped for a moment is not worth a message

[[noreturn]] void BecomeJob(const std::vector<std::string>& command, pid_t guardian) {
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != guardian) _exit(kExitPeerLost);  // it ended before the line above
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGPIPE}) ::signal(signal, SIG_DFL);
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
    if (!reported_stopped_) {
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

std::vector<ProcessEntry> Descendants() {
  std::multimap<pid_t, ProcessEntry> children;
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory("/proc");
  if (!names.ok()) return {};
  for (const std::string& name : *names) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(name, &pid)) continue;
    if (std::optional<ProcessEntry> entry = ReadEntry(pid)) children.emplace(entry->parent, *entry);
  }
  std::vector<ProcessEntry> found = {{.pid = getpid()}};
  for (size_t i = 0; i < found.size(); ++i) {
    const auto [begin, end] = children.equal_range(found[i].pid);
    for (auto child = begin; child != end; ++child) found.push_back(child->second);
  }
  found.erase(found.begin());
  return found;
}

void SignalHandlers(const std::vector<ProcessEntry>& descendants, int signal, pid_t job) {
  for (const bool shells : {false, true}) {
    std::set<pid_t> reached;  // that got it, and their descendants
    for (const ProcessEntry& process : descendants) {
      const bool handles = (shells || !IsShell(process)) && Handles(process.pid, signal);
      if (reached.contains(process.parent) || (handles && kill(process.pid, signal) == 0)) reached.insert(process.pid);
    }
    if (!reached.empty()) return;
  }
  kill(job, signal);
}

DescendantsEnd EndDescendants(absl::Duration patience) {
  const Stopwatch watch;
  std::set<pid_t> killed;
  while (true) {
    pid_t ended = 0;
    do {
      ended = waitpid(-1, nullptr, WNOHANG);
    } while (ended > 0);
    if (ended < 0 && errno == ECHILD) return {.killed = static_cast<int>(killed.size())};
    // Searched each time: a process may have started another before it was killed.
    int living = 0;
    for (const ProcessEntry& process : Descendants()) {
      ++living;
      if (process.state != 'Z' && kill(process.pid, SIGKILL) == 0) killed.insert(process.pid);
    }
    if (watch.Seconds() >= absl::ToDoubleSeconds(patience)) {
      return {.killed = static_cast<int>(killed.size()), .living = living};
    }
    absl::SleepFor(kPoll);
  }
}

absl::StatusOr<Guardian> Guardian::Start(const GuardedJob& job, std::ostream& log) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return InternalError("no pipe: ", std::strerror(errno));
  FileDescriptor read_end(ends[0]), write_end(ends[1]);
  const pid_t pid = fork();
  if (pid < 0) return InternalError("cannot start a process: ", std::strerror(errno));
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
