#include "launch/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include "gtest/gtest.h"

namespace hadal {
namespace {

// In processes of their own, since the streams are the whole process's.

[[noreturn]] void CloseAllThenOpenAFile() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) close(stream);
  OpenStandardStreams();
  if (write(STDOUT_FILENO, "x", 1) != 1) std::_Exit(1);  // "hadal … >&-" is no error
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

}  // namespace
}  // namespace hadal
