#include "launch/supervise.h"

#include <iostream>
#include <memory>

#include "launch/exit_code.h"
#include "launch/supervisor.h"

namespace hadal {

void AddSuperviseCommand(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "supervise", "Run `-- mpirun … hadal train …`: Ctrl-C saves, a crash restarts, nothing is left behind");
  auto options = std::make_shared<SupervisorOptions>();
  command->add_option("--tries", options->tries, "Starts in a row that bring no newer checkpoint")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command->add_option("command", options->command, "The command, after --")->required();
  command->callback([options, &exit_code] {
    const absl::StatusOr<int> code = Supervise(*options, std::cerr);
    if (!code.ok()) std::cerr << "hadal supervise: " << code.status().message() << "\n";
    exit_code = code.ok() ? *code : ExitCodeOf(code.status());
  });
}

}  // namespace hadal
