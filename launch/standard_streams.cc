#include "launch/standard_streams.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <iostream>
#include <string_view>

#include "runtime/files.h"

namespace hadal {
namespace {

// Whether the reader of the descriptor may end.
bool HasReader(int fd, struct stat& info) {
  return fstat(fd, &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode));
}

[[noreturn]] void Copy(int from, int to) {
  setsid();
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, nullptr);  // it ends with its writers, and SIGPIPE becomes an error
  dup2(from, STDIN_FILENO);
  dup2(to, STDOUT_FILENO);
  dup2(to, STDERR_FILENO);
  close_range(STDERR_FILENO + 1, ~0u, 0);
  char bytes[1 << 16];
  const FileDescriptor output(STDOUT_FILENO);
  bool open = true;
  ssize_t size = 0;
  while ((size = read(STDIN_FILENO, bytes, sizeof(bytes))) > 0) {
    open = open && WriteAll(output, std::string_view(bytes, static_cast<size_t>(size)), "standard output").ok();
  }
  _exit(0);
}

void Relay(int fd) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  const FileDescriptor read_end(ends[0]), write_end(ends[1]);
  const pid_t pid = fork();
  if (pid == 0) {
    if (fork() == 0) {
      close(write_end.get());  // close_range needs Linux 5.9
      Copy(read_end.get(), fd);
    }
    _exit(0);  // the copying process becomes init's child
  }
  if (pid < 0) return;
  waitpid(pid, nullptr, 0);
  dup2(write_end.get(), fd);
}

}  // namespace

void OpenStandardStreams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) >= 0) continue;
    // open returns the lowest free number, which is `stream`: those below are open.
    if (open("/dev/null", stream == STDIN_FILENO ? O_RDONLY : O_WRONLY) != stream) return;
  }
}

bool StandardOutputIsWhole() { return static_cast<bool>(std::cout.flush()); }

void RelayOutput() {
  struct stat output = {}, error = {};
  const bool relay_output = HasReader(STDOUT_FILENO, output), relay_error = HasReader(STDERR_FILENO, error);
  const bool same = relay_output && relay_error && output.st_dev == error.st_dev && output.st_ino == error.st_ino;
  if (relay_output) Relay(STDOUT_FILENO);
  if (same) {
    dup2(STDOUT_FILENO, STDERR_FILENO);
  } else if (relay_error) {
    Relay(STDERR_FILENO);
  }
}

}  // namespace hadal
