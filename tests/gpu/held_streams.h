// Asks a GPU which streams wait behind a stream that they do not depend on. A driver maps the streams of a process to a
// few hardware queues (CUDA_DEVICE_MAX_CONNECTIONS); two streams on one queue run in the order of submission, so a
// receive of NCCL that waits for its peer also stops the other stream.
#pragma once

namespace hadal::testing {

struct HeldStreams {
  int most = 0;        // of the blocked streams tried, the largest number of other streams that waited
  double average = 0;  // the mean over them
};

// Makes `streams` non-blocking streams, every third of the highest priority as a rank's transfers are. Blocks each of
// them in turn by a kernel that waits for the host, the next one by an event behind that kernel (as NCCL's own stream
// is), and counts how many of the others have not run a small kernel after 20 ms. Aborts if CUDA fails.
HeldStreams CountHeldStreams(int streams);

}  // namespace hadal::testing
