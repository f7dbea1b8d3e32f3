// The config arguments that several subcommands share: FILES… and repeated --set FIELD=VALUE.
#pragma once

#include <string>
#include <vector>

#include "tools/command_line.h"

namespace hadal {

struct ConfigArguments {
  std::vector<std::string> files;      // base first, later ones override
  std::vector<std::string> overrides;  // "a.b=c"
};

// Adds both to `command`; `arguments` is filled when the command line is parsed and must outlive that.
void AddConfigArguments(Command command, ConfigArguments& arguments);

}  // namespace hadal
