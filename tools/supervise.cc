// `hadal supervise [options] -- COMMAND…`: runs `mpirun … hadal train …` so that Ctrl-C saves, crashes restart and
// nothing is left behind (launch/supervisor.h).
#include "tools/commands.h"

#include <iostream>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "launch/exit_code.h"
#include "launch/supervisor.h"
#include "runtime/status_macros.h"
#include "tools/tool_exit_code.h"

namespace hadal {
namespace {

struct SuperviseArguments {
  SupervisorOptions options;
  std::string back_off = "1s", stopped_limit = "10m";
};

absl::Status ParseWait(const char* name, const std::string& text, absl::Duration least, absl::Duration& wait) {
  if (absl::ParseDuration(text, &wait) && wait >= least) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " \"", text, "\" is no duration of at least ",
                                                 absl::FormatDuration(least), "; write for example 90s or 10m"));
}

absl::StatusOr<int> RunSupervise(SuperviseArguments& arguments) {
  SupervisorOptions& options = arguments.options;
  HADAL_RETURN_IF_ERROR(ParseWait("--back-off", arguments.back_off, absl::ZeroDuration(), options.back_off));
  HADAL_RETURN_IF_ERROR(
      ParseWait("--stopped-limit", arguments.stopped_limit, absl::Milliseconds(100), options.stopped_limit));
  return Supervise(options, std::cerr);
}

}  // namespace

void AddSuperviseCommand(Command app, int& exit_code) {
  Command command = app.AddCommand(
      "supervise", "Run `-- mpirun … hadal train …`: Ctrl-C saves, a crash restarts, no process is left over");
  auto arguments = std::make_shared<SuperviseArguments>();
  command.AddNumber("--tries", arguments->options.tries, "Limit of crashes in a row without a newer checkpoint", 1,
                    1000000);
  command
      .AddOption("--back-off", arguments->back_off,
                 "Wait after a crash without a newer checkpoint; doubles from one to the next, up to 5m")
      .ShowDefault();
  command
      .AddOption("--stopped-limit", arguments->stopped_limit,
                 "A job with a process that is stopped (SIGSTOP) for so long counts as hung, and is restarted")
      .ShowDefault();
  command.AddOption("command", arguments->options.command, "The command, after --").Required();
  command.Runs([arguments, &exit_code] {
    const absl::StatusOr<int> code = RunSupervise(*arguments);
    if (!code.ok()) PrintToolError("supervise", code.status());
    exit_code = code.ok() ? *code : ExitCodeOf(code.status());
  });
}

}  // namespace hadal
