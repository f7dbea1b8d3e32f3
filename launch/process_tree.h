// The descendants of this process: finds them, signals them, ends them.
//
// A sub-reaper (prctl(PR_SET_CHILD_SUBREAPER)) is the parent of every descendant whose own parent has ended, also of
// one that has created its own session or has become a daemon. So none is lost, and when a sub-reaper has no child,
// it has no descendant.
// Limitation: a process that a daemon (of a container or a batch system) or a remote shell starts for the job is no
// descendant; a process of another user (setuid) cannot be killed; processes that fork and end faster than /proc is
// read escape until they stop doing so.
// Threads: one; the process must have no other. Blocking: all functions read /proc; EndDescendants also waits.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/time/time.h"

namespace hadal {

struct ProcessEntry {
  pid_t pid = -1;
  pid_t parent = -1;
  char state = '?';  // as in /proc/PID/stat: T stopped, Z ended but not reaped; other letters: it runs or waits
  std::string name;  // at most 15 bytes
};

// Returns all descendants of this process, parents before their children.
std::vector<ProcessEntry> Descendants();

// Sends `signal` to the uppermost descendants that have a handler for it: if a script runs mpirun, to mpirun, which
// passes it on to the ranks. A shell gets the signal only if no other process has a handler, because bash with a trap
// on EXIT has a handler that ends the shell. If no process has a handler, sends the signal to `job`, the process of the
// job's command.
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
