#include "tests/support/command_runner.h"

#include <gtest/gtest.h>

#include "absl/strings/str_split.h"

namespace hadal {

CommandResult RunCommand(void (*add)(Command app, int& exit_code), const std::vector<std::string>& arguments) {
  CommandLine line("hadal", "");
  CommandResult result;
  add(line.program(), result.exit_code);
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  if (line.Run(arguments) == CommandLine::Outcome::kRefused) result.exit_code = 2;
  result.out = testing::internal::GetCapturedStdout();
  result.err = testing::internal::GetCapturedStderr();
  return result;
}

CommandResult RunCommand(void (*add)(Command app, int& exit_code), const std::string& arguments) {
  const std::vector<std::string> words = absl::StrSplit(arguments, ' ', absl::SkipEmpty());
  return RunCommand(add, words);
}

}  // namespace hadal
