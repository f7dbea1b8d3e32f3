#include "launch/translate.h"

#include <iostream>
#include <memory>
#include <string>

#include "launch/exit_code.h"
#include "launch/world.h"
#include "tools/score.h"
#include "tools/translate.h"

namespace hadal {
namespace {

// Starts the world, runs body(world) in it and turns its status into an exit code.
template <typename Body>
int RunInWorld(const std::string& name, int threads, const Body& body) {
  const absl::StatusOr<std::unique_ptr<World>> world = World::Start(threads);
  if (!world.ok()) return ReportNoWorld(name, world.status());
  if (!(*world)->warning().empty()) std::cerr << "warning: " << (*world)->warning() << "\n";
  const absl::Status status = body(**world);
  if (status.ok()) return kExitDone;
  const int exit_code = ExitCodeOf(status);
  // An error that all ranks share is printed once, a rank's own (a lost peer, a deadline) by that rank.
  const bool own = exit_code == kExitHang || exit_code == kExitPeerLost;
  if ((*world)->rank() == 0 || own) std::cerr << "hadal " << name << ": " << status.message() << std::endl;
  if (own && (*world)->size() > 1) (*world)->communicator().Abort(exit_code);
  return exit_code;
}

}  // namespace

void AddTranslateCommand(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("translate", "Translate text with a trained model, alone or under mpirun/srun");
  auto options = std::make_shared<TranslateOptions>();
  AddTranslateOptions(*command, *options);
  command->callback([options, &exit_code] {
    exit_code = RunInWorld("translate", options->threads, [&](World& world) {
      return RunTranslate(*options, world.communicator(), world.stream(), {std::cin, std::cout, std::cerr});
    });
  });
}

void AddScoreCommand(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("score", "Score given translations: log-probability and token count of each pair");
  auto options = std::make_shared<ScoreOptions>();
  AddScoreOptions(*command, *options);
  command->callback([options, &exit_code] {
    exit_code = RunInWorld("score", options->threads, [&](World& world) {
      return RunScore(*options, world.communicator(), world.stream(), std::cout, std::cerr);
    });
  });
}

}  // namespace hadal
