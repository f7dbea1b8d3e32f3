// Ends the processes of a session (setsid(2)): those that a job has left behind after its leader ended.
//
// Limitation: a process that has created a session of its own is not found.
// Threads: any. Blocking: reads /proc.
#pragma once

#include <sys/types.h>

#include "absl/time/time.h"

namespace hadal {

struct SessionEnd {
  int killed = 0;  // number of processes killed
  // Number of processes still there at the end: the kernel keeps them, e.g. in a read from a dead file server or a
  // driver.
  int living = 0;
};

// Kills all processes of the session except the leader, and waits at most `patience` until they are gone: a killed
// process keeps its memory and its locks until it has ended.  REQUIRES: nobody has waited for the leader yet, so that
// its pid names no other session.
SessionEnd EndSession(pid_t leader, absl::Duration patience);

}  // namespace hadal
