// Runs a subcommand in the test's own process.
#pragma once

#include <string>
#include <vector>

#include "tools/command_line.h"

namespace hadal {

struct CommandResult {
  int exit_code = -1;  // what the command stored; 2 where the command line was refused, as launch/hadal.cc has it
  std::string out, err;
};

// `hadal ARGUMENTS…`, a program whose only command is the one that `add` adds.
CommandResult RunCommand(void (*add)(Command app, int& exit_code), const std::vector<std::string>& arguments);
// The same; `arguments` are separated by spaces.
CommandResult RunCommand(void (*add)(Command app, int& exit_code), const std::string& arguments);

}  // namespace hadal
