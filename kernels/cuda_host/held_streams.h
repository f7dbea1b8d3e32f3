// Measures on a GPU how many streams wait behind a stream that they do not depend on. A driver maps the streams of a
// process to a few hardware queues: CUDA_DEVICE_MAX_CONNECTIONS requests their number, and it may provide fewer. Two
// streams in one queue run in the order of submission, so a receive of NCCL that waits for its peer also stops the
// other stream (runtime/comm/nccl_communicator.md).
#pragma once

#include "absl/status/statusor.h"

namespace hadal::cuda {

// How many other streams waited behind a blocked stream. Each stream is blocked once.
struct HeldStreams {
  int most = 0;        // the largest number
  double average = 0;  // the mean number
};

// Makes `streams` streams on the current device; every third has the highest priority, as a rank's streams for
// transfers have. Before stream i it makes and destroys i · `discarded` others, as NCCL does for memory that it clears
// (ncclCudaCalloc, where cuMem is not used). Then does this for each of them in turn: blocks the stream by a host
// function that waits; makes the next stream wait for the blocked one by an event, as NCCL's own stream does; launches
// a small kernel on each other stream; counts the streams whose kernel has not run after 20 ms; ends the block.
// Errors: Unavailable, with CUDA's message. Blocking: milliseconds, and 20 ms for each stream behind which others wait.
absl::StatusOr<HeldStreams> CountHeldStreams(int streams, int discarded = 0);

}  // namespace hadal::cuda
