// LayerHistory stores, on one chunk, the outputs of a stack's layers so far, for models whose layers combine them
// (layers/layer_combination.h).
//
// A micro-batch's entries are stacked as [entries · rows, d]: first those received over the border, then one per layer
// of the chunk. They stay from the micro-batch's forward to its backward, also with recomputation, because
// later layers read them, in this chunk and in later ones. The whole matrix crosses the border after the chunk. A chunk
// has one gradient buffer; layers add to it in descending order.
// Storage: values as the stack's residual stream; the gradient in fp32.
// Memory: (slots + 1) · entries · rows · d elements at capacity; for inference no gradient.
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "layers/purpose.h"
#include "layers/sublayer_context.h"
#include "runtime/arena.h"

namespace hadal {

class LayerHistory {
 public:
  struct Spec {
    Stack stack = Stack::kEncoder;
    int64_t entries = 0;
    int64_t rows = 0;  // capacity
    int64_t width = 0;
    Storage storage = Storage::kFloat32;
    int32_t slots = 1;
    Purpose purpose = Purpose::kTraining;
  };
  LayerHistory(const Spec& spec, ArenaLayout& layout)
      : spec_(spec),
        values_slice_(layout.ReserveBytes("layer history", spec.slots * SlotBytes())),
        gradient_slice_(layout.Reserve<float>("layer history", spec.purpose == Purpose::kTraining ? Elements() : 0)) {}

  void Bind(const Arena& arena) {
    values_ = arena.Get<std::byte>(values_slice_);
    gradient_ = arena.Get<float>(gradient_slice_);
  }

  int64_t entries() const { return spec_.entries; }
  // The first `entries` entries of a micro-batch, and their gradient.  [entries · rows, d]
  AnyMatrix Values(const PackedBatch& batch, int64_t entries) const {
    return {values_ + batch.micro_batch % spec_.slots * SlotBytes(), Rows(batch, entries), spec_.width, spec_.storage};
  }
  Matrix Gradient(const PackedBatch& batch, int64_t entries) const {
    return {gradient_, Rows(batch, entries), spec_.width};
  }

 private:
  int64_t Elements() const { return spec_.entries * spec_.rows * spec_.width; }
  int64_t SlotBytes() const { return Elements() * BytesOf(spec_.storage); }
  int64_t Rows(const PackedBatch& batch, int64_t entries) const {
    HADAL_CHECK_LE(entries, spec_.entries);
    return entries * (spec_.stack == Stack::kEncoder ? batch.source_rows() : batch.target_rows());
  }

  Spec spec_;
  ArenaSlice values_slice_, gradient_slice_;
  std::byte* values_ = nullptr;
  float* gradient_ = nullptr;
};

}  // namespace hadal
