// Kills the processes that a job has left in its session (setsid(2)) after its leader ended.
//
// Limitation: does not find a process that has created its own session.
// Thread safety: any thread. Blocking: reads /proc.
#pragma once

#include <sys/types.h>

#include "absl/time/time.h"

namespace hadal {

struct SessionEnd {
  int killed = 0;  // number of processes killed
  // Number of processes that still exist at the end: the kernel keeps them, e.g. in a read from a dead file server or a
  // driver.
  int living = 0;
};

// Kills all processes of the session except the leader, and waits at most `patience` for their end, because a killed
// process keeps its memory and locks until then. REQUIRES: the leader has not been waited for, so that its pid names no
// other session.
SessionEnd EndSession(pid_t leader, absl::Duration patience);

}  // namespace hadal
