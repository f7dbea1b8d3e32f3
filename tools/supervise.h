// `hadal supervise [options] -- COMMAND…`: runs `mpirun … hadal train …` so that Ctrl-C saves, crashes restart and
// nothing is left behind (launch/supervisor.h).
#pragma once

#include "tools/command_line.h"

namespace hadal {

// Registers the subcommand; its callback runs the command and stores the exit code.
void AddSuperviseCommand(Command app, int& exit_code);

}  // namespace hadal
