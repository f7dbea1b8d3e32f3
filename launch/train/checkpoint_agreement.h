// Checks that all ranks read the same checkpoint, of which each reads its own part.
//
// Why: a run's newest or best checkpoint may change between two ranks' look-ups, and a host may have another run's copy
// under the same name. Half of each would be a model that nobody trained.
// Blocking: all ranks call these. Threads: one per rank.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "runtime/comm/collectives.h"

namespace hadal {

// OK if the checkpoint in `directory` is the same on all ranks, judged by its manifest, which contains the checksums of
// all the rest.
// Errors: InvalidArgument, the same on all ranks, naming the first rank with another one and its host; any rank's error
// on opening it; those of Communicator::Wait.
absl::Status AgreeOnCheckpoint(const std::string& directory, const std::string& host, Collectives& collectives);

// Rank 0 resolves `path`, a checkpoint or a run directory (ModelCheckpoint::Open), and broadcasts the directory; then
// all ranks call AgreeOnCheckpoint. Returns the directory.
// Errors: rank 0's if it finds none; AgreeOnCheckpoint's.
absl::StatusOr<std::string> BroadcastCheckpoint(const std::string& path, const std::string& host, int rank,
                                                Collectives& collectives);

}  // namespace hadal
