// Keeps this process's output open after its reader has ended (`hadal supervise -- mpirun … | tee log` when a closed
// terminal has ended tee). Open MPI's mpirun ends its ranks after ten writes to a closed pipe, in two seconds.
//
// Threads: one, and no other may run in the process.
#pragma once

namespace hadal {

// For standard output and error, if it is a pipe or a socket: starts a process that copies to it, and discards the rest
// once that fails; replaces this process's descriptor, and so those of its children, by a pipe to that process. It ends
// when all of them have closed it. It is no child of this process. Does nothing if no process or pipe can be created.
void RelayOutput();

}  // namespace hadal
