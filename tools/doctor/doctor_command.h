// The subcommand `doctor` (tools/doctor/doctor.h). It starts MPI as training does.
#pragma once

#include "tools/command_line.h"

namespace hadal {

// Registers the subcommand; its callback stores the exit code.
void AddDoctorCommand(Command app, int& exit_code);

}  // namespace hadal
