#include "launch/process_tree.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <system_error>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "runtime/clock.h"
#include "runtime/files.h"

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

}  // namespace hadal
