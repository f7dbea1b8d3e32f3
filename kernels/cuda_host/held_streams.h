// Measures on a GPU how many streams wait behind a stream that they do not depend on. A driver maps the streams of a
// process to a few hardware queues: CUDA_DEVICE_MAX_CONNECTIONS requests their number, and it may provide fewer. Two
// streams in one queue run in the order of submission, so a receive of NCCL that waits for its peer also stops the
// other stream (runtime/comm/nccl_communicator.md).
#pragma once

#include "absl/status/statusor.h"

namespace hadal::cuda {

struct HeldStreams {
  int most = 0;        // over the blocked streams: the largest number of other streams that waited
  double average = 0;  // the mean over them
};

// Makes `streams` streams on the current device, every third of the highest priority as a rank's transfers are. Blocks
// each of them in turn by a host function, the next one by an event behind it (as NCCL's own stream is), and counts how
// many of the others have not run a small kernel after 20 ms.
// Errors: Unavailable, with CUDA's message. Blocking: milliseconds, or 20 for each stream that holds others.
absl::StatusOr<HeldStreams> CountHeldStreams(int streams);

}  // namespace hadal::cuda
