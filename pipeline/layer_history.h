// The outputs of a stack's layers so far, on one chunk, where layers combine them (layers/layer_combination.h).
//
// A micro-batch's entries lie on top of each other, [entries · rows, d]: those that the border in front brought, then one that each
// layer of the chunk adds. They stay from the micro-batch's forward to its backward, with activation checkpointing too: later layers
// read them, here and behind. What crosses the border behind is the whole matrix. The gradient has one place a chunk; layers add to
// it in descending order.
// Memory: (slots + 1) · entries · rows · d floats at capacity; without training no gradient.
// Thread safety: one thread.
#pragma once

#include <cstdint>

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
    int32_t slots = 1;
    bool training = true;
  };
  LayerHistory(const Spec& spec, ArenaLayout& layout)
      : spec_(spec),
        values_slice_(layout.Reserve<float>("layer history", spec.slots * Floats())),
        gradient_slice_(layout.Reserve<float>("layer history", spec.training ? Floats() : 0)) {}

  void Bind(const Arena& arena) {
    values_ = arena.Get<float>(values_slice_);
    gradient_ = arena.Get<float>(gradient_slice_);
  }

  int64_t entries() const { return spec_.entries; }
  // The first `entries` entries of a micro-batch; their gradient.  [entries · rows, d]
  Matrix Values(const PackedBatch& batch, int64_t entries) const {
    return View(values_ + batch.micro_batch % spec_.slots * Floats(), batch, entries);
  }
  Matrix Gradient(const PackedBatch& batch, int64_t entries) const { return View(gradient_, batch, entries); }

 private:
  int64_t Floats() const { return spec_.entries * spec_.rows * spec_.width; }
  Matrix View(float* data, const PackedBatch& batch, int64_t entries) const {
    HADAL_CHECK_LE(entries, spec_.entries);
    const int64_t rows = spec_.stack == Stack::kEncoder ? batch.source_rows() : batch.target_rows();
    return {data, entries * rows, spec_.width};
  }

  Spec spec_;
  ArenaSlice values_slice_, gradient_slice_;
  float *values_ = nullptr, *gradient_ = nullptr;
};

}  // namespace hadal
