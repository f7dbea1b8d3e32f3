// The start of an epoch in the sequence of micro-batches (sampling_order.h).
//
// Stored in checkpoints: the number of micro-batches of an epoch is known only after shuffling and packing it, so a run
// resumed in epoch 300 would otherwise shuffle and pack 300 epochs before its first step.
// Thread safety: plain values.
#pragma once

#include <cstdint>

namespace hadal {

struct EpochPosition {
  uint32_t order = 0;       // identifies the order: a checksum of the samples' lengths, the seed and the capacity
  int64_t epoch = 0;        // from 0
  int64_t micro_batch = 0;  // the epoch's first micro-batch
  bool operator==(const EpochPosition&) const = default;
};

}  // namespace hadal
