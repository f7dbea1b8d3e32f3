// SIGUSR1, SIGINT, SIGTERM and SIGHUP (a terminal that closes; under nohup it stays ignored) ask a run to save and
// stop; the handler only sets a flag. The other functions keep SIGPIPE, SIGXFSZ and SIGBUS from ending a run without a
// word.
#pragma once

namespace hadal {

// Installs the handlers, for a command that polls StopSignalled. Call first in main, because a signal that comes
// earlier ends the process. The second SIGINT or SIGTERM ends the process at once. SIGUSR1 and SIGHUP do not count as a
// first or second: Slurm sends USR1 and then TERM while the run saves, and both the shell and the kernel send HUP when
// a terminal closes.
void InstallStopSignals();

// Ignores SIGPIPE. A run started by itself must not end because nobody reads its progress any more (`hadal train … |
// tee`, and tee is gone). Do not call it for ranks of mpirun, whose reader is mpirun: they end.
void IgnoreClosedPipes();

// Ignores SIGXFSZ: a write beyond `ulimit -f` returns an error, as on a full disk, instead of ending the process.
void IgnoreFileSizeSignal();

// Handles SIGBUS: if a part of a mapped file is gone when it is read (truncated, or the disk fails), ends the process
// with a message that names the file, and with exit code 3.
void ExplainLostPages();

// Whether one of the stop signals has arrived.
bool StopSignalled();

}  // namespace hadal
