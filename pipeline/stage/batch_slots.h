// BatchSlots copies the contents of a chunk's micro-batches (tokens, offsets, scalars) to blocks in device memory, one
// block for each slot; micro-batch m has slot m mod slots.
//
// Fill copies a micro-batch to its slot's block (kernels/device_batch.h) in one transfer, when its forward starts. All
// kernels of its forward and backward read the block. The block's address is fixed, so a CUDA graph recorded for one
// micro-batch can be launched for the next in the same slot. The host builds the blocks in pinned memory.
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/device_batch.h"
#include "layers/chunk_part.h"
#include "runtime/arena.h"

namespace hadal {

class BatchSlots {
 public:
  struct Spec {
    int32_t first_sublayer = 0, sublayers = 0;  // the sublayers whose branch gains a block contains
    int32_t slots = 1;
    ActivationCapacity capacity;
    int64_t frame_width = 0;  // if the chunk reads frames of speech; else 0
  };
  BatchSlots(const Spec& spec, ArenaLayout& layout);
  void Bind(const Arena& arena);

  // Copies context.batch and context.scalars to the batch's slot, in one asynchronous copy on the stream. Returns the
  // block's device addresses, valid until the slot's next Fill.
  // REQUIRES: the host has waited for the end of the slot's previous copy (DeviceQueues).
  const DeviceBatch& Fill(const SublayerContext& context);
  // Return the addresses and the shape of a batch that Fill has copied.
  const DeviceBatch& Of(const PackedBatch& batch) const { return slots_[SlotOf(batch)].device_batch; }
  const DeviceBatchShape& ShapeOf(const PackedBatch& batch) const { return slots_[SlotOf(batch)].shape; }

 private:
  struct Slot {
    DeviceBatch device_batch;
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
