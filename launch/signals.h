// Signal handling. SIGUSR1, SIGINT, SIGTERM and SIGHUP (sent when a terminal closes; ignored under nohup) make a run
// save and stop; the handler only sets a flag. The other functions prevent SIGPIPE, SIGXFSZ and SIGBUS from ending a
// run without a message.
#pragma once

namespace hadal {

// Installs the handlers, for a command that polls StopSignalled. Must be called first in main, because an earlier
// signal ends the process. The second SIGINT or SIGTERM ends the process at once. SIGUSR1 and SIGHUP do not count:
// Slurm sends USR1 and, while the run saves, TERM; and when a terminal closes, both the shell and the kernel send HUP.
void InstallStopSignals();

// Ignores SIGPIPE, so that a run started by itself continues without a reader of its progress (`hadal train … | tee`
// after tee has ended). Must not be called for ranks of mpirun, whose reader is mpirun: they must end.
void IgnoreClosedPipes();

// Ignores SIGXFSZ: a write beyond `ulimit -f` then returns an error, as on a full disk, instead of ending the process.
void IgnoreFileSizeSignal();

// Handles SIGBUS: if a part of a mapped file is missing when it is read (truncated, or the disk fails), ends the
// process with a message that names the file, and with exit code 3.
void ExplainLostPages();

// Whether one of the stop signals has arrived.
bool StopSignalled();

}  // namespace hadal
