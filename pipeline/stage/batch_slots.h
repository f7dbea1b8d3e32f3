// BatchSlots holds a chunk's micro-batches in device memory: one block per slot.
//
// Fill copies a micro-batch into its slot's block (kernels/device_batch.h) in one transfer, when its forward starts.
// All kernels of its forward and backward read the block there. A block has a fixed address, so what was launched for
// one micro-batch (a recorded graph) can be launched again for the next one in the same slot. On the host, pinned
// memory of the same size holds the blocks while they are built.
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
    int32_t first_sublayer = 0, sublayers = 0;  // the range whose branch gains a block holds
    int32_t slots = 1;
    ActivationCapacity capacity;
  };
  BatchSlots(const Spec& spec, ArenaLayout& layout);
  void Bind(const Arena& arena);

  // Copies context.batch and context.scalars to their slot: one copy, in the stream's order.
  // REQUIRES: the host has waited for the device since the slot was last filled.
  const DeviceBatch& Fill(const SublayerContext& context);
  // Addresses and shape of a batch that Fill has copied.
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
