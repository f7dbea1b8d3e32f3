#include "launch/doctor.h"

#include <iostream>
#include <memory>

#include "CLI/CLI.hpp"
#include "launch/error_report.h"
#include "launch/exit_code.h"
#include "launch/world.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"
#include "tools/doctor.h"

namespace hadal {
namespace {

struct DoctorArguments {
  ProbeOptions probe;
  int threads = 0;
  double message_mib = 4, file_mib = 16;
  bool json = false;
};

absl::StatusOr<int> DoctorInWorld(DoctorArguments arguments, World& world) {
  arguments.probe.message_bytes = static_cast<int64_t>(arguments.message_mib * (1 << 20));
  arguments.probe.file_bytes = static_cast<int64_t>(arguments.file_mib * (1 << 20));
  // A directory that cannot be made is found out, rank by rank, by writing into it.
  const absl::Status made = MakeDirectories(arguments.probe.directory);
  if (!made.ok() && world.rank() == 0) std::cerr << "hadal doctor: " << made.message() << "\n";
  HADAL_ASSIGN_OR_RETURN(const DoctorReport report, Examine(world.communicator(), world.stream(), arguments.probe));
  if (world.rank() == 0) std::cout << (arguments.json ? DoctorToJson(report) : DoctorToText(report)) << std::flush;
  return report.healthy() ? kExitDone : kExitError;
}

int RunDoctor(const DoctorArguments& arguments) {
  const absl::StatusOr<std::unique_ptr<World>> world = World::Start(arguments.threads);
  if (!world.ok()) return ReportNoWorld("doctor", world.status());
  const absl::StatusOr<int> code = DoctorInWorld(arguments, **world);
  if (code.ok()) return *code;
  const bool together = ReportError("doctor", code.status(), (*world)->communicator(), std::cerr);
  if (!together) (*world)->communicator().Abort(ExitCodeOf(code.status()));
  return ExitCodeOf(code.status());
}

}  // namespace

void AddDoctorCommand(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("doctor", "Examine the ranks, links and files of a job before it runs");
  auto arguments = std::make_shared<DoctorArguments>();
  const CLI::Range sizes(0.001, 1024.0);
  command->add_option("--run-dir", arguments->probe.directory, "Where the run will write")->capture_default_str();
  command->add_option("--threads", arguments->threads, "CPU threads a rank; 0: its share of the host")
      ->check(CLI::Range(0, 1024));
  command->add_option("--message-mib", arguments->message_mib, "Size of the messages, MiB")->check(sizes);
  command->add_option("--file-mib", arguments->file_mib, "Size of each rank's file, MiB")->check(sizes);
  command->add_flag("--json", arguments->json, "Print everything as JSON");
  command->callback([arguments, &exit_code] { exit_code = RunDoctor(*arguments); });
}

}  // namespace hadal
