// What an output may replace and where it may be. Every command checks its outputs by these rules before its work.
//
//   what has the output's name                         result
//   nothing, or an empty file                          is written
//   a file that the command has written                is replaced: `is_own` recognises it by its content
//   any other file                                     AlreadyExists
//   an input of the command, under any name            InvalidArgument
//   a symbolic link                                    FailedPrecondition: links are not followed
//   a directory, a device or a pipe                    FailedPrecondition
// Nowhere is anything written into a checkpoint, or under a name that a run directory has (InvalidArgument).
// Directories above the output may be links. Thread safety: any thread. Blocking: reads directories and files.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace hadal {

struct OutputRules {
  std::vector<std::string> inputs;
  // Whether the command has written a file with this content (its first 64 KiB). Null: no.
  std::function<bool(std::string_view content)> is_own;
  const char* remedy = "remove it, or choose another --out";  // of AlreadyExists
};

// Checks the place of an output file or folder: outside checkpoints and of the names that run directories have.
absl::Status CheckPlace(const std::string& path);
// Checks a file by all rules.
absl::Status CheckOutput(const std::string& path, const OutputRules& rules);
// Checks files and folders that a command writes together: if one of them exists, `rules.is_own` must recognise the
// first. None may be a link.
absl::Status CheckOutputs(const std::vector<std::string>& paths, const OutputRules& rules);

}  // namespace hadal
