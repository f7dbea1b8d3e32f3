#include "pipeline/stage/batch_slots.h"

#include "kernels/device_kernels.h"
#include "runtime/check.h"

namespace hadal {
namespace {

ConstTokens ViewOf(const std::vector<int32_t>& tokens) { return {tokens.data(), static_cast<int64_t>(tokens.size())}; }

}  // namespace

BatchSlots::BatchSlots(const Spec& spec, ArenaLayout& layout)
    : spec_(spec),
      block_bytes_(ArenaLayout::Aligned(BatchBytes(
          LargestShape(spec.capacity.source_rows, spec.capacity.target_rows, spec.sublayers, spec.frame_width)))),
      device_slice_(layout.ReserveBytes("micro-batches", block_bytes_ * spec.slots)),
      host_slice_(layout.ReserveHostBytes("micro-batches", block_bytes_ * spec.slots)),
      branch_gains_(spec.sublayers),
      slots_(spec.slots) {}

void BatchSlots::Bind(const Arena& arena) {
  on_device_ = arena.Get<std::byte>(device_slice_);
  on_host_ = arena.Get<std::byte>(host_slice_);
}

const DeviceBatch& BatchSlots::Fill(const SublayerContext& context) {
  const PackedBatch& batch = context.batch;
  for (int32_t s = 0; s < spec_.sublayers; ++s) {
    branch_gains_[s] = BranchGain(context.plan().sublayers[spec_.first_sublayer + s], context.scalars.growth_update());
  }
  const uint64_t seed = context.scalars.seed;
  BatchContent content{.random = {.seed_low = static_cast<uint32_t>(seed),
                                  .seed_high = static_cast<uint32_t>(seed >> 32),
                                  .micro_batch = static_cast<uint32_t>(batch.micro_batch),
                                  .step = static_cast<uint32_t>(context.scalars.step)},
                       .gradient_scale = context.scalars.gradient_scale,
                       .branch_gains = {branch_gains_.data(), spec_.sublayers},
                       .first_sublayer = spec_.first_sublayer,
                       .source = ViewOf(batch.source),
                       .target_input = ViewOf(batch.target_input),
                       .target = ViewOf(batch.target),
                       .source_offsets = ViewOf(batch.source_offsets),
                       .target_offsets = ViewOf(batch.target_offsets)};
  if (spec_.frame_width > 0) {
    HADAL_CHECK_EQ(int64_t{batch.frame_width}, spec_.frame_width);
    content.frame_offsets = ViewOf(batch.frame_offsets);
    content.frames = {batch.frames.data(), batch.frame_offsets.back(), spec_.frame_width};
  }
  const size_t index = SlotOf(batch);
  Slot& slot = slots_[index];
  slot.shape = hadal::ShapeOf(content);
  const int64_t bytes = BatchBytes(slot.shape), offset = static_cast<int64_t>(index) * block_bytes_;
  HADAL_CHECK_LE(bytes, block_bytes_);
  Device& device = *context.stream.device();
  device.kernels().write_batch(content, slot.shape, on_host_ + offset);
  device.EnqueueCopyIn(on_device_ + offset, on_host_ + offset, bytes);
  slot.device_batch = DeviceBatchIn(slot.shape, spec_.first_sublayer, on_device_ + offset);
  return slot.device_batch;
}

}  // namespace hadal
