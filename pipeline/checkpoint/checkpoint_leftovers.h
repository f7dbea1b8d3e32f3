// Removes what killed launches of a run have left unfinished in RUN/checkpoints. It is recognised by its names:
//
//   step_N.tmp.<attempt>/                                a checkpoint that was being written
//   step_N.tmp.removed/, step_N.tmp.removed.<attempt>/   one that was being removed, whole or half-written
//   step_N.replaced.<attempt>/                           one that was moved aside for a newer one of the same step
//   {latest,best,attempt}.<attempt>, ….<attempt>.2       a link or file that was to be renamed to the part before the
//                                                        dot
// All other names belong to the user, e.g. a directory "best.wmt" or "step_00000005.tmp.mine".
// Thread safety: any thread. Blocking: file input and output.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace hadal {

// Between the checkpoint's name and the attempt's.
inline constexpr char kTemporary[] = ".tmp.";
inline constexpr char kReplaced[] = ".replaced.";
// After the name of a checkpoint that is being removed.
inline constexpr char kRemoved[] = ".tmp.removed";

// Removes the leftovers. A checkpoint that was moved aside is moved back if the newer one did not take its place.
// Directories are renamed first, so that a launch that is still alive no longer writes to the old path.
// `attempt`: the caller's. Errors: the first one; it still removes the rest.
absl::Status RemoveLeftovers(const std::string& run_directory, const std::string& attempt);

}  // namespace hadal
