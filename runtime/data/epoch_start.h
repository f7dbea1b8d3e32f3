// Where an epoch begins in the stream of micro-batches (sampling_order.h).
//
// Why it is stored: the number of micro-batches of an epoch is known only after shuffling and packing it. A run that
// resumes in its 300th epoch would have to do that 300 times before its first step, but with this only once.
// Thread safety: plain values.
#pragma once

#include <cstdint>

namespace hadal {

struct EpochStart {
  uint32_t order = 0;       // names the order: a checksum of the samples' lengths, the seed and the capacity
  int64_t epoch = 0;        // from 0
  int64_t micro_batch = 0;  // its first one
  bool operator==(const EpochStart&) const = default;
};

}  // namespace hadal
