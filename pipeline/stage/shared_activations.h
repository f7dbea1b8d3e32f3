// Buffers that a rank's chunks share, because one chunk computes at a time: results of recomputation, and the gradients
// of the streams within a chunk.
// Thread safety: read-only after Bind; the computing chunk uses the buffers.
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
  // States how much one segment saves; the buffer is as large as the largest.
  void Require(int64_t saved_bytes) { saved_bytes_ = std::max(saved_bytes_, saved_bytes); }
  // Call once, after every chunk has called Require.
  void Reserve(const ModelPlan& plan, const ActivationCapacity& capacity, Purpose purpose, ArenaLayout& layout);
  void Bind(const Arena& arena);

  std::byte* saved() const { return saved_; }  // one segment's saved tensors
  // Where a recomputation writes its output, which nobody reads.
  AnyMatrix discard(int64_t rows, Storage storage) const { return {discard_, rows, width_, storage}; }
  // Gradient of a stack's residual stream.
  AnyMatrix gradient(Stack stack, int64_t rows) const {
    return stack == Stack::kEncoder ? AnyMatrix(source_gradient_, rows, width_, source_storage_)
                                    : AnyMatrix(target_gradient_, rows, width_, target_storage_);
  }
  // Gradient of the encoder's output, in fp32. It is gradient(kEncoder) itself if the encoder's residual stream is
  // fp32.
  Matrix encoder_output_gradient(int64_t rows) const { return {encoder_output_gradient_, rows, width_}; }
  bool encoder_output_apart() const { return source_storage_ != Storage::kFloat32; }

 private:
  int64_t saved_bytes_ = 0, width_ = 0;
  Storage source_storage_ = Storage::kFloat32, target_storage_ = Storage::kFloat32;
  ArenaSlice saved_slice_, discard_slice_, source_slice_, target_slice_, encoder_output_slice_;
  std::byte *saved_ = nullptr, *discard_ = nullptr, *source_gradient_ = nullptr, *target_gradient_ = nullptr;
  float* encoder_output_gradient_ = nullptr;
};

}  // namespace hadal
