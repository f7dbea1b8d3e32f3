#include "launch/standard_streams.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string>

#include "gtest/gtest.h"
#include "runtime/files.h"

namespace hadal {
namespace {

// In processes of their own, since the streams are the whole process's.

[[noreturn]] void CloseAllThenOpenAFile() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) close(stream);
  OpenStandardStreams();
  char byte = 0;
  if (write(STDOUT_FILENO, "x", 1) != 1) std::_Exit(1);  // "hadal … >&-" is no error
  if (read(STDIN_FILENO, &byte, 1) != 0) std::_Exit(1);  // and "<&-" an empty input
  std::_Exit(open("/dev/null", O_RDONLY));
}

TEST(StandardStreamsDeathTest, NoFileTakesTheirNumbers) {
  EXPECT_EXIT(
      CloseAllThenOpenAFile(), [](int status) { return WIFEXITED(status) && WEXITSTATUS(status) > 2; }, "");
}

TEST(StandardStreamsDeathTest, WhatIsOpenStays) {
  const auto keep = [] {
    OpenStandardStreams();
    std::cerr << "still heard" << std::flush;
    std::_Exit(0);
  };
  EXPECT_EXIT(keep(), ::testing::ExitedWithCode(0), "still heard");
}

[[noreturn]] void PrintTo(const char* path) {
  dup2(open(path, O_WRONLY), STDOUT_FILENO);
  std::cout << "all of it";
  std::_Exit(StandardOutputIsWhole() ? 0 : 7);
}

TEST(StandardStreamsDeathTest, AFullDiskIsNoticed) {
  EXPECT_EXIT(PrintTo("/dev/full"), ::testing::ExitedWithCode(7), "");
  EXPECT_EXIT(PrintTo("/dev/null"), ::testing::ExitedWithCode(0), "");
}

std::string ReadAll(const FileDescriptor& file) {
  std::string text;
  char byte = 0;
  while (read(file.get(), &byte, 1) == 1) text += byte;
  return text;
}

// One is a socket, as under some launchers.
TEST(StandardStreams, ARelayKeepsOutputAndErrorsApart) {
  int output[2], error[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, output), 0);
  ASSERT_EQ(pipe2(error, O_CLOEXEC), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(output[1], STDOUT_FILENO);
    dup2(error[1], STDERR_FILENO);
    for (const int end : {output[0], output[1], error[0], error[1]}) close(end);
    RelayOutput();
    struct stat info = {};
    fstat(STDOUT_FILENO, &info);
    const bool written = write(STDOUT_FILENO, "output", 6) == 6 && write(STDERR_FILENO, "error", 5) == 5;
    _exit(written && S_ISFIFO(info.st_mode) ? 0 : 7);
  }
  close(output[1]);
  close(error[1]);
  EXPECT_EQ(ReadAll(FileDescriptor(output[0])), "output");
  EXPECT_EQ(ReadAll(FileDescriptor(error[0])), "error");
  int status = -1;
  waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0) << "the socket is relayed, too";
}

}  // namespace
}  // namespace hadal
