// Starts the project's Python packages (tools/python): pyhadal draws what runs recorded, hadal_torch converts models.
//
// The interpreter is $HADAL_PYTHON, else python3. The packages are those of the source tree that hadal was built from,
// else those installed with hadal (share/hadal/python), else Python's own. The working folder is never on Python's path
// (a json.py there would be executed); the user's site-packages and PYTHONPATH are. The environment variable HADAL has
// the path of this program. Blocking: until the child ends. It has this process's standard streams, gets the signals
// TERM, INT and HUP that arrive meanwhile, and TERM if this process dies.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/files.h"

namespace hadal {

// The path of this process's program; "" if it is not known.
std::string ThisProgram();

// Runs `python3 -m PACKAGE ARGUMENTS` and returns its exit status; it has printed its own errors. `input`: the child's
// standard input, if not empty.
// Errors: NotFound if the interpreter cannot be started; Internal if a signal ended it.
absl::StatusOr<int> RunPythonPackage(const std::string& package, const std::vector<std::string>& arguments,
                                     const std::string& input = "");

// A package that runs as long as the object, and answers messages on its standard input and output. Thread safety: one
// thread. Blocking: every call.
class PythonService {
 public:
  // Starts `python3 -m PACKAGE ARGUMENTS`. Errors: NotFound, as above.
  static absl::StatusOr<PythonService> Start(const std::string& package, const std::vector<std::string>& arguments);
  PythonService(PythonService&& other) noexcept;
  PythonService& operator=(PythonService&& other) noexcept {
    std::swap(socket_, other.socket_);
    std::swap(child_, other.child_);
    return *this;
  }
  // Closes the child's input and waits for its end.
  ~PythonService();

  // Sends a message and reads the answer; each is a uint64 with its size, then its bytes. Errors: Internal if the child
  // has ended; it has printed why.
  absl::StatusOr<std::string> Ask(std::string_view message);

 private:
  PythonService(FileDescriptor socket, pid_t child) : socket_(std::move(socket)), child_(child) {}

  FileDescriptor socket_;
  pid_t child_;  // 0: moved
};

// Runs `python3 -m hadal_torch ARGUMENTS`.
// Errors: as above; with an empty message if the package has printed why: InvalidArgument (exit status 2), DataLoss
// (3), else Internal.
absl::Status RunHadalTorch(const std::vector<std::string>& arguments);

// Runs a command of pyhadal for `hadal COMMAND`. Returns the exit code for hadal; prints an error of starting it.
int RunPyhadal(const std::string& command, std::vector<std::string> arguments, const std::string& input = "");

// Checks that Python and the packages of `hadal COMMAND` are there, before long work whose result they draw. Returns 0,
// or the exit code for hadal after printing what is missing.
int CheckPyhadal(const std::string& command);

}  // namespace hadal
