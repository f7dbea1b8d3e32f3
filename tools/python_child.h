// Starts the project's Python packages (tools/python): pyhadal draws what runs recorded, hadal_torch converts models.
//
// The interpreter is $HADAL_PYTHON, else python3. The packages are those of the source tree that hadal was built from,
// else those installed with hadal (share/hadal/python), else Python's own. The working folder is never on Python's path
// (a json.py there would be executed); the user's site-packages and PYTHONPATH are. The child's environment
// variable HADAL is the path of this program. The child has this process's standard streams, unless a function below
// says otherwise, and gets TERM if this process dies. Functions that run a package block until the child ends; they
// pass on to it the signals TERM, INT and HUP that arrive meanwhile, and kill it at the second INT.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/files.h"

namespace hadal {

// A package that runs as long as the object, and answers messages on its standard input and output. Thread safety: one
// thread. Blocking: every call.
class PythonService {
 public:
  // Starts `python3 -m PACKAGE ARGUMENTS`. Errors: NotFound if the interpreter cannot be started; Internal.
  static absl::StatusOr<PythonService> Start(const std::string& package, const std::vector<std::string>& arguments);
  PythonService(PythonService&& other) noexcept;
  PythonService& operator=(PythonService&& other) noexcept {
    std::swap(socket_, other.socket_);
    std::swap(child_, other.child_);
    return *this;
  }
  // Closes the child's input and waits for its end.
  ~PythonService();

  // Sends a message and returns the answer. Each travels as its size in bytes (uint64, this host's byte order), then
  // its bytes. Errors: Internal if the child has ended, having printed why.
  absl::StatusOr<std::string> Ask(std::string_view message);

 private:
  PythonService(FileDescriptor socket, pid_t child) : socket_(std::move(socket)), child_(child) {}

  FileDescriptor socket_;
  pid_t child_;  // 0: moved
};

// Runs `python3 -m hadal_torch ARGUMENTS`.
// Errors: NotFound if the interpreter cannot be started; Internal if a signal ended the child. If the package fails it
// has printed why, and the message is empty: InvalidArgument (exit status 2), DataLoss (3), else Internal.
absl::Status RunHadalTorch(const std::vector<std::string>& arguments);

// Runs pyhadal's command for `hadal COMMAND` and returns the exit code for hadal. If it cannot run, prints the error.
int RunPyhadal(const std::string& command, std::vector<std::string> arguments, const std::string& input = "");

// Becomes pyhadal's command for `hadal COMMAND`, in the same process, which a user's or a batch system's signals reach.
// Returns only if that fails: the exit code for hadal, after printing the error.
int BecomePyhadal(const std::string& command, const std::vector<std::string>& arguments);

// Checks that Python and the packages of `hadal COMMAND` are there, before long work whose result they draw. Returns 0,
// or the exit code for hadal after printing what is missing.
int CheckPyhadal(const std::string& command);

}  // namespace hadal
