// Runs a subcommand in the test's process.
#pragma once

#include "tools/commands.h"

namespace hadal {

struct CommandResult {
  int exit_code = -1;  // as the command stored it; 2 for bad usage, as in tools/hadal.cc
  std::string out, err;
};

// Runs `hadal ARGUMENTS…`, where hadal has only the subcommand that `add` registers.
CommandResult RunCommand(void (*add)(Command app, int& exit_code), const std::vector<std::string>& arguments);
// As above; `arguments` are separated by spaces.
CommandResult RunCommand(void (*add)(Command app, int& exit_code), const std::string& arguments);

}  // namespace hadal
