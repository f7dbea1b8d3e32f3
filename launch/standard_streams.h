// Protects a process's standard streams: opens those that the parent process has closed, so that no other file gets
// their descriptors (0, 1, 2), reports at the end whether all standard output was written, and keeps the output open
// after its reader has ended.
// Threads: the main thread. Blocking: StandardOutputIsWhole, while it writes.
#pragma once

namespace hadal {

// Opens closed standard streams on /dev/null, for a process started with `>&-`: otherwise the next opened file would
// get their number and receive printed text. Must be called first in main.
void OpenStandardStreams();

// Flushes standard output; returns false if output was lost, for example on a full disk.
bool StandardOutputIsWhole();

// For each of standard output and error that is a pipe or a socket: starts a relay process, and replaces the descriptor
// of this process (and of children started later) by a pipe to the relay. The relay copies what it reads to the
// original pipe, discards it once a write there fails, and ends when all writers have closed the new pipe. The relay is
// no child of this process. Does nothing if no process or pipe can be created.
// Why: in `hadal supervise -- mpirun … | tee log` the reader ends when the terminal is closed. Open MPI's mpirun would
// then end its ranks two seconds later, after ten writes to the closed pipe.
// REQUIRES: no other thread runs in the process.
void RelayOutput();

}  // namespace hadal
