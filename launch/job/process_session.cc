#include "launch/job/process_session.h"

#include <signal.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "runtime/clock.h"
#include "runtime/files.h"

namespace hadal {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(10);

// Returns the session of a process, or -1 if the process has ended. /proc/PID/stat is "pid (name) state ppid pgrp
// session …", with the number of threads as the 20th word; the name may contain anything but its last ')'.
pid_t SessionOf(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::stringstream text;
  text << file.rdbuf();
  const std::string stat = text.str();
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return -1;
  std::istringstream fields(stat.substr(name_end + 1));
  std::string state, skipped;
  pid_t parent = 0, group = 0, session = -1;
  int threads = 1;
  fields >> state >> parent >> group >> session;
  constexpr int kBetween = 13;
  for (int i = 0; i < kBetween; ++i) fields >> skipped;
  fields >> threads;
  // A zombie has released everything, unless other threads of it are still ending.
  return state == "Z" && threads <= 1 ? -1 : session;
}

// Returns the session's processes, except the leader.
std::vector<pid_t> Members(pid_t leader) {
  std::vector<pid_t> members;
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory("/proc");
  if (!names.ok()) return members;
  for (const std::string& name : *names) {
    pid_t pid = 0;
    if (absl::SimpleAtoi(name, &pid) && pid != leader && SessionOf(name) == leader) members.push_back(pid);
  }
  return members;
}

}  // namespace

SessionEnd EndSession(pid_t leader, absl::Duration patience) {
  const Stopwatch watch;
  std::set<pid_t> killed;
  while (true) {
    // Searched each time: a process may have started another before it was killed.
    const std::vector<pid_t> members = Members(leader);
    for (const pid_t pid : members) {
      if (kill(pid, SIGKILL) == 0) killed.insert(pid);
    }
    const bool waited = watch.Seconds() >= absl::ToDoubleSeconds(patience);
    if (members.empty() || waited) {
      return {.killed = static_cast<int>(killed.size()), .living = static_cast<int>(members.size())};
    }
    absl::SleepFor(kPoll);
  }
}

}  // namespace hadal
