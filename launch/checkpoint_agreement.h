// That all ranks read one checkpoint, of which each reads its own part: a run's newest or best may change between one
// rank's look and another's, and a host may have a copy of its own under the same name, of another run. Half of each
// would be a model that nobody trained.
//
// Blocking: all ranks call these. Threads: one a rank.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "runtime/comm/collectives.h"

namespace hadal {

// OK where the checkpoint in `directory` is the same on all ranks, by its manifest, which has the checksums of all the
// rest.
// Errors: InvalidArgument, the same on all ranks, with the first rank that has another and its host; those of opening
// it, of any rank; those of transfers.
absl::Status AgreeOnCheckpoint(const std::string& directory, const std::string& host, Collectives& collectives);

// The directory that rank 0 finds by `path`, a checkpoint or a run directory (ModelCheckpoint::Open), on all ranks,
// which agree on it.
// Errors: rank 0's where it finds none; AgreeOnCheckpoint's.
absl::StatusOr<std::string> ShareCheckpoint(const std::string& path, const std::string& host, int rank,
                                            Collectives& collectives);

}  // namespace hadal
