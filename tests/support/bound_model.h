// A small model on the CPU whose layers a test calls directly: plan, weights, gradients, scratch and one micro-batch.
#pragma once

#include "layers/chunk_part.h"
#include "layers/model_plan.h"
#include "layers/parameter_store.h"
#include "runtime/arena.h"
#include "runtime/data/packed_batch.h"
#include "runtime/stream.h"
#include "tests/support/small_model.h"

namespace hadal::testing {

// The options of each stack; d_ff is not a multiple of d_model.
constexpr SmallShape NarrowShape(int32_t layers) {
  return {.encoder_layers = layers,
          .decoder_layers = layers,
          .d_model = 16,
          .d_ff = 24,
          .heads = 2,
          .vocabulary = 23,
          .max_positions = 16};
}

// Returns sentence pairs with these numbers of rows per side, and arbitrary tokens.
PackedBatch PairsOf(const std::vector<int32_t>& source_rows, const std::vector<int32_t>& target_rows,
                    int32_t vocabulary);

// Thread safety: one thread, which becomes a compute thread (runtime/compute_thread.h).
class BoundModel {
 public:
  // Initial weights, moved away from special values and from points where the loss is not smooth (moved_parameters.h).
  BoundModel(const ModelOptions& options, PackedBatch batch);
  BoundModel(const BoundModel&) = delete;
  BoundModel& operator=(const BoundModel&) = delete;

  const ModelPlan& plan() const { return plan_; }
  const ParameterStore& parameters() const { return parameters_; }
  const PackedBatch& batch() const { return batch_; }
  const ActivationCapacity& capacity() const { return capacity_; }
  // The context of a training step with dropout, unscaled gradients and no encoder output.
  SublayerContext Context() const;
  void ClearGradients() const;
  std::vector<float> AllGradients() const;
  std::vector<float> GradientOf(int32_t parameter) const;
  std::span<float> WeightOf(int32_t parameter) const;

 private:
  const Stream stream_ = Stream::Cpu(1);
  const ModelPlan plan_;
  const PackedBatch batch_;
  const ActivationCapacity capacity_;
  ArenaLayout layout_;
  ParameterStore parameters_;
  Workspace workspace_;
  Arena arena_;
};

}  // namespace hadal::testing
