// What launches of a run that were killed have left half-done in RUN/checkpoints, by its names:
//
//   step_N.tmp.<attempt>/                                a checkpoint that was being written
//   step_N.tmp.removed/, step_N.tmp.removed.<attempt>/   one that was being removed, whole or half-written
//   step_N.replaced.<attempt>/                           one that was stepping aside for a newer one of the same step
//   {latest,best,attempt}.<attempt>, ….<attempt>.2       a link or file that was to be renamed to what is in front
// All else is people's own, be it a directory "best.wmt" or "step_00000005.tmp.mine".
// Thread safety: any thread. Blocking: file input and output.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace hadal {

// Between a checkpoint's name and the attempt's.
inline constexpr char kTemporary[] = ".tmp.";
inline constexpr char kReplaced[] = ".replaced.";
// Behind a checkpoint's name, while it is being removed.
inline constexpr char kRemoved[] = ".tmp.removed";

// Removes it; a checkpoint that was stepping aside goes back to its place where the newer one did not get there.
// Directories are renamed first: a launch that is still alive and writes there writes somewhere else from then on.
// `attempt`: the caller's. Errors: the first one; the rest is removed all the same.
absl::Status RemoveLeftovers(const std::string& run_directory, const std::string& attempt);

}  // namespace hadal
