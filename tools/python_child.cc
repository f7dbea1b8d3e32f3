#include "tools/python_child.h"

#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"
#include "tools/tool_exit_code.h"

namespace hadal {
namespace {

constexpr char kPathVariable[] = "PYTHONPATH=", kProgramVariable[] = "HADAL=";

// Runs a module as -m does, but without the working folder, which -c puts on the path. -P is Python 3.11's.
std::string Bootstrap(const std::string& package) {
  return absl::StrCat("import sys; sys.path[:] = [p for p in sys.path if p]; import runpy; runpy.run_module('", package,
                      "', run_name='__main__', alter_sys=True)");
}

std::filesystem::path ThisProgram() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error);
}

// This process's environment, with the packages first in Python's path.
std::vector<std::string> PythonEnvironment() {
  std::vector<std::string> variables;
  const std::filesystem::path program = ThisProgram();
  std::string path = absl::StrCat(kPathVariable, HADAL_PYTHON_PACKAGES, ":",
                                  (program.parent_path().parent_path() / "share/hadal/python").string());
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (absl::StartsWith(*variable, kPathVariable)) {
      // An empty part would be the working folder.
      for (const auto part : absl::StrSplit(*variable + sizeof(kPathVariable) - 1, ':', absl::SkipEmpty())) {
        absl::StrAppend(&path, ":", part);
      }
    } else if (!absl::StartsWith(*variable, kProgramVariable)) {
      variables.emplace_back(*variable);
    }
  }
  variables.push_back(std::move(path));
  variables.push_back(absl::StrCat(kProgramVariable, program.string()));
  return variables;
}

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

// A file in memory with `text`, at its beginning.
absl::StatusOr<FileDescriptor> InMemory(const std::string& text) {
  FileDescriptor file(memfd_create("input", MFD_CLOEXEC));
  if (file.get() < 0) return absl::InternalError(absl::StrCat("memfd_create: ", std::strerror(errno)));
  for (size_t written = 0; written < text.size();) {
    const ssize_t count = write(file.get(), text.data() + written, text.size() - written);
    if (count < 0) return absl::ResourceExhaustedError(absl::StrCat("input of Python: ", std::strerror(errno)));
    written += static_cast<size_t>(count);
  }
  lseek(file.get(), 0, SEEK_SET);
  return file;
}

}  // namespace

absl::StatusOr<int> RunPythonPackage(const std::string& package, const std::vector<std::string>& arguments,
                                     const std::string& input) {
  const char* const named = std::getenv("HADAL_PYTHON");
  const std::string python = named == nullptr ? "python3" : named;
  std::vector<std::string> words = {python, "-c", Bootstrap(package)};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> variables = PythonEnvironment();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const absl::Cleanup destroy = [&actions] { posix_spawn_file_actions_destroy(&actions); };
  FileDescriptor file;
  if (!input.empty()) {
    HADAL_ASSIGN_OR_RETURN(file, InMemory(input));
    posix_spawn_file_actions_adddup2(&actions, file.get(), STDIN_FILENO);
  }
  pid_t pid = -1;
  const int error =
      posix_spawnp(&pid, python.c_str(), &actions, nullptr, Pointers(words).data(), Pointers(variables).data());
  if (error != 0) {
    return absl::NotFoundError(absl::StrCat("cannot start ", python, " (", std::strerror(error),
                                            "); install Python 3, or name an interpreter in HADAL_PYTHON"));
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return absl::InternalError(absl::StrCat("waiting for ", python, ": ", std::strerror(errno)));
  }
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  return absl::InternalError(absl::StrCat(python, " -m ", package, " ended with signal ", WTERMSIG(status)));
}

absl::Status RunHadalTorch(const std::vector<std::string>& arguments) {
  HADAL_ASSIGN_OR_RETURN(const int code, RunPythonPackage("hadal_torch", arguments));
  if (code == 0) return absl::OkStatus();
  const std::string message = absl::StrCat("hadal_torch ended with exit status ", code, "; its message is above");
  return code == kToolUsage ? absl::InvalidArgumentError(message) : absl::InternalError(message);
}

int RunPyhadal(const std::string& command, std::vector<std::string> arguments, const std::string& input) {
  arguments.insert(arguments.begin(), command);
  const absl::StatusOr<int> code = RunPythonPackage("pyhadal", arguments, input);
  return code.ok() ? *code : EndTool(command, code.status());
}

}  // namespace hadal
