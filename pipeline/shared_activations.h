// Buffers that the chunks of a rank share because they are in use only while one of them computes: what a recomputation
// makes, and the gradients of the streams on their way through a chunk.
// Thread safety: read-only after Bind; the buffers are the computing chunk's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "layers/model_plan.h"
#include "layers/purpose.h"
#include "layers/sublayer_context.h"
#include "runtime/arena.h"
#include "runtime/tensor.h"

namespace hadal {

class SharedActivations {
 public:
  void Require(int64_t saved_bytes) { saved_bytes_ = std::max(saved_bytes_, saved_bytes); }
  // Call once, after every chunk has stated what it requires.
  void Reserve(const ModelPlan& plan, const ActivationCapacity& capacity, Purpose purpose, ArenaLayout& layout);
  void Bind(const Arena& arena);

  std::byte* saved() const { return saved_; }  // one segment's saved tensors
  // Output of a recomputation.
  AnyMatrix discard(int64_t rows, Storage storage) const { return {discard_, rows, width_, storage}; }
  // Of a stack's stream.
  AnyMatrix gradient(Stack stack, int64_t rows) const {
    return stack == Stack::kEncoder ? AnyMatrix(source_gradient_, rows, width_, source_storage_)
                                    : AnyMatrix(target_gradient_, rows, width_, target_storage_);
  }
  // Of the encoder's memory: fp32, and where the encoder's stream is too, the same buffer.
  Matrix memory_gradient(int64_t rows) const { return {memory_gradient_, rows, width_}; }
  bool memory_apart() const { return source_storage_ != Storage::kFloat32; }

 private:
  int64_t saved_bytes_ = 0, width_ = 0;
  Storage source_storage_ = Storage::kFloat32, target_storage_ = Storage::kFloat32;
  ArenaSlice saved_slice_, discard_slice_, source_slice_, target_slice_, memory_slice_;
  std::byte *saved_ = nullptr, *discard_ = nullptr, *source_gradient_ = nullptr, *target_gradient_ = nullptr;
  float* memory_gradient_ = nullptr;
};

}  // namespace hadal
