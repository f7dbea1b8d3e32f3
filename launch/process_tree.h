// The descendants of this process: finds them, signals them, ends them.
//
// A sub-reaper (prctl(PR_SET_CHILD_SUBREAPER)) is the parent of every descendant whose own parent has ended, also of
// one that has created its own session or has become a daemon. So none is lost, and when a sub-reaper has no child,
// it has no descendant.
// Limitation: a process that another one starts on the job's behalf (a container's or a batch system's daemon, a
// remote shell) is no descendant; one of another user (setuid) cannot be killed; processes that fork and end faster
// than /proc is read escape until they stop doing so.
// Threads: one; the process must have no other. Blocking: they read /proc.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/time/time.h"

namespace hadal {

struct ProcessEntry {
  pid_t pid = -1;
  pid_t parent = -1;
  char state = '?';  // of /proc/PID/stat: T stopped, Z all threads ended, not waited for
  std::string name;  // at most 15 bytes
};

// Returns all descendants of this process, parents before their children.
std::vector<ProcessEntry> Descendants();

// Sends `signal` to those that handle it and have no ancestor among the descendants that does: of a script that runs
// mpirun, to mpirun, which passes it on. A shell gets it only if nothing else handles it: bash with a trap on EXIT has
// a handler that ends it. If none handles it, `job` gets it.
void SignalHandlers(const std::vector<ProcessEntry>& descendants, int signal, pid_t job);

struct DescendantsEnd {
  int killed = 0;  // number of processes killed
  // Number of processes that still exist at the end: the kernel keeps them, e.g. in a read from a dead file server or a
  // driver.
  int living = 0;
};
// Kills all descendants and waits at most `patience` for their end, because a killed process keeps its memory and locks
// until then. Waits for (reaps) every child that has ended. REQUIRES: this process is a sub-reaper.
DescendantsEnd EndDescendants(absl::Duration patience);

}  // namespace hadal
