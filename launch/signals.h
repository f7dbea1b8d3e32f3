// Signal handling. SIGUSR1, SIGUSR2 (submitit's), SIGINT, SIGTERM and SIGHUP (sent when a terminal closes; ignored
// under nohup) make a run save and stop; the handler only sets a flag. The other functions prevent SIGPIPE, SIGXFSZ and
// SIGBUS from ending a run without a message.
#pragma once

namespace hadal {

// Installs the handlers, for a command that polls StopSignalled. Must be called first in main, because an earlier
// signal ends the process. The second SIGINT ends the process at once. Repeated signals of the other kinds change
// nothing: at a time limit and at a preemption Slurm sends USR1, then TERM, CONT and TERM within a second while the run
// saves, and both the shell and the kernel send HUP when a terminal closes. SIGKILL ends a run without saving.
void InstallStopSignals();

// Ignores SIGPIPE, so that a run started without mpirun continues when the reader of its output has ended (tee in
// `hadal train … | tee`). Must not be called for ranks of mpirun: mpirun reads their output, and they must end with it.
void IgnoreClosedPipes();

// Ignores SIGXFSZ: a write beyond `ulimit -f` then returns an error, as on a full disk, instead of ending the process.
void IgnoreFileSizeSignal();

// Handles SIGBUS: if a part of a mapped file is missing when it is read (truncated, or the disk fails), ends the
// process with a message that names the file, and with exit code 3.
void ExplainLostPages();

// Whether one of the stop signals has arrived.
bool StopSignalled();

}  // namespace hadal
