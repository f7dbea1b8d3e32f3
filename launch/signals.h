// SIGUSR1, SIGINT and SIGTERM ask a run to save and stop; nothing else happens in the handler.
#pragma once

namespace hadal {

// Installs the handlers, for a command that asks StopSignalled. Call first thing in main: a signal that comes earlier ends the process.
// A second SIGINT or SIGTERM ends it at once.
void InstallStopSignals();

// Whether one of the signals has come.
bool StopSignalled();

}  // namespace hadal
