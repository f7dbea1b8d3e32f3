// The micro-batches under way as a device reads them: a block of its memory a slot of a chunk, filled by one copy when
// the micro-batch's forward starts (kernels/device_batch.h), and read by all launches of its forward and its backward.
//
// A block lies at a fixed place, so that what was launched for one micro-batch can be launched again for the next one
// in its slot. The host keeps as much pinned memory, in which blocks are made.
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/device_batch.h"
#include "layers/sublayer_context.h"
#include "runtime/arena.h"

namespace hadal {

class BatchSlots {
 public:
  struct Spec {
    int32_t first_sublayer = 0, sublayers = 0;  // whose branch gains are in a block
    int32_t slots = 1;
    ActivationCapacity capacity;
  };
  BatchSlots(const Spec& spec, ArenaLayout& layout);
  void Bind(const Arena& arena);

  // Puts context.batch and context.scalars into their slot: one copy, in the order of the stream.
  // REQUIRES: the device has been waited for since the slot was last filled.
  const DeviceBatch& Fill(const SublayerContext& context);
  // The places and the shape of a batch that has been put into its slot.
  const DeviceBatch& Of(const PackedBatch& batch) const { return slots_[SlotOf(batch)].places; }
  const DeviceBatchShape& ShapeOf(const PackedBatch& batch) const { return slots_[SlotOf(batch)].shape; }

 private:
  struct Slot {
    DeviceBatch places;
    DeviceBatchShape shape;
  };
  size_t SlotOf(const PackedBatch& batch) const { return static_cast<size_t>(batch.micro_batch % spec_.slots); }

  Spec spec_;
  int64_t block_bytes_;
  ArenaSlice device_slice_, host_slice_;
  std::byte *on_device_ = nullptr, *on_host_ = nullptr;
  std::vector<float> branch_gains_;  // [sublayers]
  std::vector<Slot> slots_;
};

}  // namespace hadal
