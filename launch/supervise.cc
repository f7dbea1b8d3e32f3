#include "launch/supervise.h"

#include <iostream>
#include <memory>

#include "launch/job/exit_code.h"
#include "launch/job/supervisor.h"

namespace hadal {

void AddSuperviseCommand(Command app, int& exit_code) {
  Command command = app.AddCommand(
      "supervise", "Run `-- mpirun … hadal train …`: Ctrl-C saves, a crash restarts, no process is left over");
  auto options = std::make_shared<SupervisorOptions>();
  command.AddOption("--tries", options->tries, "Limit of starts in a row without a newer checkpoint")
      .InRange(1, 1000000)
      .ShowDefault();
  command.AddOption("command", options->command, "The command, after --").Required();
  command.Runs([options, &exit_code] {
    const absl::StatusOr<int> code = Supervise(*options, std::cerr);
    if (!code.ok()) std::cerr << "hadal supervise: " << code.status().message() << "\n";
    exit_code = code.ok() ? *code : ExitCodeOf(code.status());
  });
}

}  // namespace hadal
