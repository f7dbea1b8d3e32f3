// Arena memory for the activations and gradients of live micro-batches.
//
// Constructors reserve all memory in an ArenaLayout. The address of a tensor depends only on the micro-batch's slot and
// does not change.
// Thread safety: read-only after Bind; only the chunk that is computing accesses the memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "layers/model_plan.h"
#include "layers/purpose.h"
#include "layers/sublayer_context.h"
#include "runtime/arena.h"
#include "runtime/tensor.h"

namespace hadal {

// A fixed number of bytes for each of `slots` micro-batches; micro-batch m uses slot m mod slots.
class SlotMemory {
 public:
  SlotMemory() = default;  // none
  SlotMemory(int64_t bytes, int32_t slots, const std::string& category, ArenaLayout& layout)
      : slots_(slots), slot_bytes_(ArenaLayout::Aligned(bytes)) {
    slice_ = layout.ReserveBytes(category, slot_bytes_ * slots);
  }
  void Bind(const Arena& arena) {
    if (slot_bytes_ > 0) data_ = arena.Get<std::byte>(slice_);
  }
  // Returns the address for `batch`; null if no memory is reserved.
  std::byte* At(const PackedBatch& batch) const {
    return data_ == nullptr ? nullptr : data_ + batch.micro_batch % slots_ * slot_bytes_;
  }

 private:
  int32_t slots_ = 1;
  int64_t slot_bytes_ = 0;
  ArenaSlice slice_;
  std::byte* data_ = nullptr;
};

// Shape and type of a micro-batch's tensor: `entries` matrices [rows of the stack, d], stacked by rows.
struct TensorType {
  Stack rows = Stack::kEncoder;
  int64_t entries = 1;
  Storage storage = Storage::kFloat32;
};

// The memory of one tensor of each live micro-batch.
class TensorMemory {
 public:
  TensorMemory() = default;  // none
  TensorMemory(const TensorType& type, const ModelPlan& plan, const ActivationCapacity& capacity, int32_t slots,
               const std::string& category, ArenaLayout& layout)
      : type_(type),
        width_(plan.options.d_model),
        memory_(type.entries * capacity.rows(type.rows) * width_ * BytesOf(type.storage), slots, category, layout) {}
  void Bind(const Arena& arena) { memory_.Bind(arena); }

  const TensorType& type() const { return type_; }
  // Returns entries [first, first + entries) as [entries · rows, d]; empty if no memory is reserved.
  AnyMatrix View(const PackedBatch& batch, int64_t first, int64_t entries) const {
    std::byte* const data = memory_.At(batch);
    if (data == nullptr) return {};
    HADAL_CHECK_LE(first + entries, type_.entries);
    const int64_t rows = type_.rows == Stack::kEncoder ? batch.source_rows() : batch.target_rows();
    return {data + first * rows * width_ * BytesOf(type_.storage), entries * rows, width_, type_.storage};
  }

 private:
  TensorType type_;
  int64_t width_ = 0;
  SlotMemory memory_;
};

// Memory shared by all chunks of a rank, of which only one computes at a time. The tensors of pending weight halves
// have slots, also shared by all chunks (schedule_check.h's peak_pending says how many are needed).
class SharedActivations {
 public:
  // Reserves the gradients; for inference, none.
  SharedActivations(const ModelPlan& plan, const ActivationCapacity& capacity, Purpose purpose, ArenaLayout& layout);
  // Require memory for what is recomputed at once, the tensors that only input halves read apart, and for the pending
  // tensors of some steps of a whole backward or of one weight half. The maximum of all calls is reserved.
  void RequireSaved(int64_t bytes) { saved_bytes_ = std::max(saved_bytes_, ArenaLayout::Aligned(bytes)); }
  void RequireSavedInput(int64_t bytes) { saved_input_bytes_ = std::max(saved_input_bytes_, bytes); }
  void RequirePendingSteps(int64_t bytes) { step_bytes_ = std::max(step_bytes_, bytes); }
  void RequirePendingHalf(int64_t bytes) { half_bytes_ = std::max(half_bytes_, ArenaLayout::Aligned(bytes)); }
  // Call once, after all calls of the others. A whole backward uses the memory of the weight halves, none of which is
  // pending then.
  void ReserveRequired(int32_t pending_slots, ArenaLayout& layout);
  void Bind(const Arena& arena);

  std::byte* saved() const { return saved_; }
  std::byte* saved_input() const { return saved_ == nullptr ? nullptr : saved_ + saved_bytes_; }
  std::byte* pending(int32_t slot) const { return pending_ == nullptr ? nullptr : pending_ + slot * half_bytes_; }
  // Returns memory for the unused output of a recomputation.
  AnyMatrix discard(int64_t rows, Storage storage) const { return {discard_, rows, width_, storage}; }
  // Returns the gradient of a stack's residual stream.
  const TensorMemory& gradient(Stack stack) const { return gradients_[static_cast<size_t>(stack)]; }
  // Returns the fp32 gradient of a stack's second stream, if it has one.
  const TensorMemory& second_gradient(Stack stack) const { return second_gradients_[static_cast<size_t>(stack)]; }
  // Returns the fp32 gradient of the encoder's output. Equal to gradient(kEncoder) if the encoder's residual stream is
  // fp32.
  const TensorMemory& encoder_output_gradient() const { return encoder_output_gradient_; }

 private:
  Purpose purpose_;
  int64_t width_, saved_bytes_ = 0, saved_input_bytes_ = 0, step_bytes_ = 0, half_bytes_ = 0;
  TensorMemory gradients_[2], second_gradients_[2], encoder_output_gradient_;  // [stacks]
  ArenaSlice discard_slice_, saved_slice_, pending_slice_;
  std::byte *discard_ = nullptr, *saved_ = nullptr, *pending_ = nullptr;
};

}  // namespace hadal
