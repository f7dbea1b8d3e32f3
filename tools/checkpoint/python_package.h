// Runs the Python package hadal_torch (tools/python), which converts models from and to other programs' formats.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace hadal {

// Runs `python3 -m hadal_torch ARGUMENTS` with this process's output streams, and waits for its end. The interpreter is
// $HADAL_PYTHON, else python3; the package is that of the source tree that hadal was built from, else the one installed
// with hadal (share/hadal/python), else Python's own.
// Errors: NotFound if the interpreter cannot be started; InvalidArgument if the package refuses the arguments (exit
// status 2; it has printed why); Internal if it fails otherwise.
absl::Status RunHadalTorch(const std::vector<std::string>& arguments);
// Runs a command of pyhadal for `hadal COMMAND`. Returns the exit code for hadal; prints an error of starting it.
int RunPyhadal(const std::string& command, std::vector<std::string> arguments);

}  // namespace hadal
