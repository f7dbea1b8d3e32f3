#include "tools/python_child.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/status_macros.h"
#include "tools/tool_exit_code.h"

namespace hadal {
namespace {

// Defers TERM, INT and HUP while something half written or a child exists: what is half written is removed and the
// child ends, then the signal takes its effect on this process. Signals that are ignored (nohup) stay ignored.
// Threads: those that the object's thread starts meanwhile defer them, too; a thread that was there before does not.
class DeferredSignals {
 public:
  DeferredSignals();
  // A signal that has arrived takes its effect now, if this is the outermost object. So declare it before what removes
  // the half-written files.
  ~DeferredSignals();
  DeferredSignals(const DeferredSignals&) = delete;
  DeferredSignals& operator=(const DeferredSignals&) = delete;

  // Waits for a child's end, passes on to it the signals that arrive meanwhile, and kills it at the second INT.
  // Returns what waitpid reports. Errors: Internal.
  absl::StatusOr<int> WaitFor(pid_t child) const;

  // In a child between vfork and exec: the deferred signals take their default effect.
  void EndInChild() const;

 private:
  sigset_t signals_;          // those that are deferred
  sigset_t before_;           // this thread's mask
  mutable int received_ = 0;  // by WaitFor
};

constexpr int kDeferred[] = {SIGTERM, SIGINT, SIGHUP};

DeferredSignals::DeferredSignals() {
  sigemptyset(&signals_);
  for (const int signal : kDeferred) {
    struct sigaction action = {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&signals_, signal);
  }
  sigset_t blocked = signals_;
  sigaddset(&blocked, SIGCHLD);  // WaitFor waits for it
  pthread_sigmask(SIG_BLOCK, &blocked, &before_);
}

DeferredSignals::~DeferredSignals() {
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  if (received_ == 0 || sigismember(&before_, received_) == 1) return;
  // The process is still there: a handler took the signal. If it has given the signal its default effect back, another
  // thread ends the process (tools/output/staged_output.cc).
  struct sigaction action = {};
  sigaction(received_, nullptr, &action);
  while (action.sa_handler == SIG_DFL) pause();
}

absl::StatusOr<int> DeferredSignals::WaitFor(pid_t child) const {
  constexpr timespec kLongest = {.tv_sec = 1, .tv_nsec = 0};  // another thread may have taken SIGCHLD
  sigset_t awaited = signals_;
  sigaddset(&awaited, SIGCHLD);
  int status = 0;
  pid_t ended = 0;
  while ((ended = waitpid(child, &status, WNOHANG)) == 0) {
    const int signal = sigtimedwait(&awaited, nullptr, &kLongest);
    if (signal <= 0 || signal == SIGCHLD) continue;
    kill(child, signal == SIGINT && received_ == SIGINT ? SIGKILL : signal);
    received_ = signal;
  }
  if (received_ != 0) kill(getpid(), received_);  // takes its effect at this object's end
  if (ended < 0) return InternalError("waiting for a child: ", std::strerror(errno));
  return status;
}

void DeferredSignals::EndInChild() const {
  sigset_t blocked = signals_;
  sigaddset(&blocked, SIGCHLD);
  for (const int signal : kDeferred) {
    if (sigismember(&signals_, signal) == 1) std::signal(signal, SIG_DFL);
  }
  pthread_sigmask(SIG_UNBLOCK, &blocked, nullptr);  // not before_: an outer object's
}

constexpr char kPathVariable[] = "PYTHONPATH=", kProgramVariable[] = "HADAL=", kUtf8Variable[] = "PYTHONUTF8=";

// Runs a module as -m does, but without the working folder, which -c puts on the path. -P is Python 3.11's.
std::string Bootstrap(const std::string& package) {
  return absl::StrCat("import sys; sys.path[:] = [p for p in sys.path if p]; import runpy; runpy.run_module('", package,
                      "', run_name='__main__', alter_sys=True)");
}

// This process's environment, with the packages first in Python's path, and UTF-8 in every locale: paths pass as bytes.
std::vector<std::string> PythonEnvironment() {
  std::vector<std::string> variables;
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);  // "": unknown
  std::string path = absl::StrCat(kPathVariable, (program.parent_path() / HADAL_PYTHON_PACKAGES).string(), ":",
                                  (program.parent_path().parent_path() / "share/hadal/python").string());
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (absl::StartsWith(*variable, kPathVariable)) {
      // An empty part would be the working folder.
      for (const auto part : absl::StrSplit(*variable + sizeof(kPathVariable) - 1, ':', absl::SkipEmpty())) {
        absl::StrAppend(&path, ":", part);
      }
    } else if (!absl::StartsWith(*variable, kProgramVariable) && !absl::StartsWith(*variable, kUtf8Variable)) {
      variables.emplace_back(*variable);
    }
  }
  variables.push_back(std::move(path));
  variables.push_back(absl::StrCat(kProgramVariable, program.string()));
  variables.push_back(absl::StrCat(kUtf8Variable, "1"));
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
  if (file.get() < 0) return InternalError("memfd_create: ", std::strerror(errno));
  for (size_t written = 0; written < text.size();) {
    const ssize_t count = write(file.get(), text.data() + written, text.size() - written);
    if (count < 0) return ResourceExhaustedError("input of Python: ", std::strerror(errno));
    written += static_cast<size_t>(count);
  }
  lseek(file.get(), 0, SEEK_SET);
  return file;
}

// What the child executes. The pointers are those of the parent's memory, which a child of vfork shares until exec.
struct ChildStart {
  char* const* words;
  char* const* variables;
  int input;   // its standard input, or -1
  int output;  // its standard output, or -1
  pid_t parent;
};

// Runs between vfork and exec: only async-signal-safe calls. Sets `error` if the program cannot be executed.
[[noreturn]] void BecomePython(const ChildStart& start, const DeferredSignals& deferred, volatile int& error) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);  // however this process ends, the child ends and removes its temporary files
  if (getppid() != start.parent) _exit(kToolError);
  if (start.input >= 0) dup2(start.input, STDIN_FILENO);
  if (start.output >= 0) dup2(start.output, STDOUT_FILENO);
  deferred.EndInChild();
  execvpe(start.words[0], start.words, start.variables);
  error = errno;
  _exit(kToolError);
}

std::string Interpreter() {
  const char* const named = std::getenv("HADAL_PYTHON");
  return named == nullptr || *named == 0 ? "python3" : named;
}

absl::Status CannotStart(int error) {
  return NotFoundError("cannot start ", Interpreter(), " (", std::strerror(error),
                       "); install Python 3, or name an interpreter in HADAL_PYTHON");
}

// Starts `python3 -m PACKAGE ARGUMENTS` with the given standard input and output, -1 for this process's. Errors:
// NotFound.
absl::StatusOr<pid_t> StartPython(const std::string& package, const std::vector<std::string>& arguments, int input,
                                  int output, const DeferredSignals& deferred) {
  std::vector<std::string> words = {Interpreter(), "-c", Bootstrap(package)};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> variables = PythonEnvironment();
  const std::vector<char*> word_pointers = Pointers(words), variable_pointers = Pointers(variables);
  const ChildStart start = {word_pointers.data(), variable_pointers.data(), input, output, getpid()};
  volatile int error = 0;
  // Not fork: that copies the page tables of a program that may hold a model, and memory of its GPU or network.
  const pid_t pid = vfork();
  if (pid == 0) BecomePython(start, deferred, error);
  if (pid < 0) error = errno;
  if (error == 0) return pid;
  if (pid > 0) waitpid(pid, nullptr, 0);
  return CannotStart(error);
}

// Runs `python3 -m PACKAGE ARGUMENTS` and returns its exit status; the package prints its own errors. `input`: the text
// of the child's standard input, if not empty.
// Errors: NotFound if the interpreter cannot be started; Internal if a signal ended the child.
absl::StatusOr<int> RunPythonPackage(const std::string& package, const std::vector<std::string>& arguments,
                                     const std::string& input = "") {
  FileDescriptor file;
  if (!input.empty()) {
    HADAL_ASSIGN_OR_RETURN(file, InMemory(input));
  }
  const DeferredSignals deferred;
  HADAL_ASSIGN_OR_RETURN(const pid_t pid, StartPython(package, arguments, file.get(), /*output=*/-1, deferred));
  HADAL_ASSIGN_OR_RETURN(const int status, deferred.WaitFor(pid));
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  return InternalError(Interpreter(), " -m ", package, " ended with signal ", WTERMSIG(status));
}

}  // namespace

absl::StatusOr<PythonService> PythonService::Start(const std::string& package,
                                                   const std::vector<std::string>& arguments) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
    return InternalError("socketpair: ", std::strerror(errno));
  }
  FileDescriptor ours(sockets[0]);
  const FileDescriptor theirs(sockets[1]);
  const DeferredSignals deferred;
  HADAL_ASSIGN_OR_RETURN(const pid_t pid, StartPython(package, arguments, theirs.get(), theirs.get(), deferred));
  return PythonService(std::move(ours), pid);
}

PythonService::PythonService(PythonService&& other) noexcept
    : socket_(std::move(other.socket_)), child_(std::exchange(other.child_, 0)) {}

PythonService::~PythonService() {
  if (child_ == 0) return;
  socket_ = FileDescriptor();
  while (waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

absl::StatusOr<std::string> PythonService::Ask(std::string_view message) {
  const auto transfer = [&](char* bytes, size_t size, bool writes) {
    for (size_t done = 0; done < size;) {
      const ssize_t count = writes ? send(socket_.get(), bytes + done, size - done, MSG_NOSIGNAL)
                                   : recv(socket_.get(), bytes + done, size - done, 0);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return false;
      done += static_cast<size_t>(count);
    }
    return true;
  };
  uint64_t size = message.size();
  std::string sent(reinterpret_cast<const char*>(&size), sizeof(size)), answer;
  sent += message;
  bool done = transfer(sent.data(), sent.size(), true) && transfer(reinterpret_cast<char*>(&size), sizeof(size), false);
  if (done) {
    answer.resize(size);
    done = transfer(answer.data(), size, false);
  }
  if (done) return answer;
  return InternalError(Interpreter(), " has ended; its message stands above");
}

absl::Status RunHadalTorch(const std::vector<std::string>& arguments) {
  HADAL_ASSIGN_OR_RETURN(const int code, RunPythonPackage("hadal_torch", arguments));
  return ToolStatus(code);
}

int RunPyhadal(const std::string& command, std::vector<std::string> arguments, const std::string& input) {
  arguments.insert(arguments.begin(), command);
  const absl::StatusOr<int> code = RunPythonPackage("pyhadal", arguments, input);
  return code.ok() ? *code : EndTool(command, code.status());
}

int BecomePyhadal(const std::string& command, const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {Interpreter(), "-c", Bootstrap("pyhadal"), command};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> variables = PythonEnvironment();
  execvpe(words[0].c_str(), Pointers(words).data(), Pointers(variables).data());
  return EndTool(command, CannotStart(errno));
}

int CheckPyhadal(const std::string& command) {
  const absl::StatusOr<int> code = RunPythonPackage("pyhadal", {"packages", command});
  return code.ok() ? *code : EndTool(command, code.status());
}

}  // namespace hadal
