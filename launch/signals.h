// SIGUSR1, SIGINT, SIGTERM and SIGHUP (a terminal that goes away; under nohup it stays ignored) ask a run to save and
// stop; nothing else happens in the handler. What other signals do to a program that knows better.
#pragma once

namespace hadal {

// Installs the handlers, for a command that asks StopSignalled. Call first thing in main: a signal that comes earlier
// ends the process. The second of SIGINT and SIGTERM ends it at once. SIGUSR1 and SIGHUP do not count: Slurm sends USR1
// and then TERM while the run saves, and shell and kernel both tell of a terminal that goes away.
void InstallStopSignals();

// A run by itself does not end because nobody reads its progress any more (`hadal train … | tee`, and tee is gone).
// Ranks of mpirun do: their reader is mpirun.
void IgnoreClosedPipes();

// A write beyond `ulimit -f` is an error that says so, as on a full disk, and no signal that ends the process.
void IgnoreFileSizeSignal();

// A part of a mapped file that is gone when it is read (truncated by somebody, a disk that fails) ends the process with
// words that name the file, and with exit code 3.
void ExplainLostPages();

// Whether one of the signals has come.
bool StopSignalled();

}  // namespace hadal
