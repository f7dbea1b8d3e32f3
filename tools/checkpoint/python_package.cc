#include "tools/checkpoint/python_package.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tools/tool_exit_code.h"

namespace hadal {
namespace {

constexpr char kPathVariable[] = "PYTHONPATH=";

// Where the package is beside an installed program.
std::string InstalledPackages() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  return (program.parent_path().parent_path() / "share/hadal/python").string();
}

// This process's environment, with hadal's package first in Python's path.
std::vector<std::string> Environment() {
  std::vector<std::string> variables;
  std::string path = absl::StrCat(kPathVariable, HADAL_PYTHON_PACKAGES, ":", InstalledPackages());
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (absl::StartsWith(*variable, kPathVariable)) {
      absl::StrAppend(&path, ":", *variable + sizeof(kPathVariable) - 1);
    } else {
      variables.emplace_back(*variable);
    }
  }
  variables.push_back(std::move(path));
  return variables;
}

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

absl::Status RunPackage(const std::string& package, const std::vector<std::string>& arguments) {
  const char* const named = std::getenv("HADAL_PYTHON");
  const std::string python = named == nullptr ? "python3" : named;
  std::vector<std::string> words = {python, "-m", package};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> variables = Environment();
  pid_t pid = -1;
  const int error =
      posix_spawnp(&pid, python.c_str(), nullptr, nullptr, Pointers(words).data(), Pointers(variables).data());
  if (error != 0) {
    return absl::NotFoundError(absl::StrCat("cannot start ", python, " (", std::strerror(error),
                                            "); install Python 3, or name an interpreter in HADAL_PYTHON"));
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return absl::InternalError(absl::StrCat("waiting for ", python, ": ", std::strerror(errno)));
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  const std::string message = absl::StrCat(
      python, " -m ", package, " ended with ",
      WIFEXITED(status) ? absl::StrCat("exit status ", WEXITSTATUS(status)) : absl::StrCat("signal ", WTERMSIG(status)),
      "; its message is above");
  if (WIFEXITED(status) && WEXITSTATUS(status) == kToolUsage) return absl::InvalidArgumentError(message);
  return absl::InternalError(message);
}

}  // namespace

absl::Status RunHadalTorch(const std::vector<std::string>& arguments) { return RunPackage("hadal_torch", arguments); }

int RunPyhadal(const std::string& command, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), command);
  return EndTool(command, RunPackage("pyhadal", arguments));
}

}  // namespace hadal
