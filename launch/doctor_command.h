// The subcommand `doctor` (tools/doctor/doctor.h). It starts MPI as training does.
#pragma once

namespace CLI {
class App;
}

namespace hadal {

// Registers the subcommand; its callback stores the exit code.
void AddDoctorCommand(CLI::App& app, int& exit_code);

}  // namespace hadal
