// The checkpoint that all ranks load: rank 0 chooses it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "pipeline/checkpoint/checkpoint_manifest.h"
#include "runtime/comm/collectives.h"

namespace hadal {

// A checkpoint chosen by rank 0 and broadcast to all ranks.
struct SharedCheckpoint {
  std::string directory;  // empty: none
  CheckpointManifest manifest;
  std::string host;  // of rank 0
};
// Broadcasts rank 0's choice. Collective, blocking.  Errors: on all ranks, that of `chosen` on rank 0.
absl::StatusOr<SharedCheckpoint> ShareCheckpoint(absl::StatusOr<FoundCheckpoint> chosen, int rank,
                                                 Collectives& collectives);
// Returns OK if the directory contains the same checkpoint on this rank's host; parts of two different ones must not be
// combined. Blocking: reads its manifest.  Errors: InvalidArgument with rank, host and both checkpoints; those of
// CheckpointReader::Open.
absl::Status CompareWithOwn(const SharedCheckpoint& shared, int rank);

}  // namespace hadal
