// The processes of a session (setsid(2)): what a job has left behind when its leader has ended.
//
// Limitation: a process that has made a session of its own is not found.
// Threads: any. Blocking: reads /proc.
#pragma once

#include <sys/types.h>

#include "absl/time/time.h"

namespace hadal {

struct SessionEnd {
  int killed = 0;  // how many there were
  // How many have not gone in time: the kernel keeps them, in a read of a dead file server or a driver, say.
  int living = 0;
};

// Kills what is left of the session, the leader apart, and waits until it has gone: a killed process keeps its memory
// and its locks for as long as its end takes. Waits at most `patience`.  REQUIRES: the leader is not yet waited for, so
// that its pid names no other session.
SessionEnd EndSession(pid_t leader, absl::Duration patience);

}  // namespace hadal
