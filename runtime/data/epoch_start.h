// Where an epoch begins in the stream of micro-batches (sampling_order.h).
//
// Why it is kept: how many micro-batches an epoch has is known once it is shuffled and packed. A run that goes on in its 300th epoch would
// have to do that 300 times before its first step, with this once.
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
