// Keeps this process's output open after its reader has ended, for example tee in `hadal supervise -- mpirun … | tee
// log` when the terminal is closed. Without this, Open MPI's mpirun would end its ranks two seconds later, after ten
// writes to the closed pipe.
// Threads: one, and no other may run in the process.
#pragma once

namespace hadal {

// For each of standard output and error that is a pipe or a socket: starts a relay process, and replaces the descriptor
// of this process (and of children started later) by a pipe to the relay. The relay copies what it reads to the
// original pipe, discards it once a write there fails, and ends when all writers have closed the new pipe. The relay is
// no child of this process. Does nothing if no process or pipe can be created.
void RelayOutput();

}  // namespace hadal
