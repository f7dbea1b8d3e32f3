// A small model on the CPU whose layers a test calls itself: plan, weights, gradients, scratch and one micro-batch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "layers/model_plan.h"
#include "layers/parameter_store.h"
#include "layers/sublayer_context.h"
#include "runtime/arena.h"
#include "runtime/data/packed_batch.h"
#include "runtime/stream.h"
#include "tests/support/small_model.h"

namespace hadal::testing {

// Of either stack; d_ff is no multiple of d_model.
constexpr SmallShape NarrowShape(int32_t layers) {
  return {.encoder_layers = layers,
          .decoder_layers = layers,
          .d_model = 16,
          .d_ff = 24,
          .heads = 2,
          .vocabulary = 23,
          .max_positions = 16};
}

// Sentence pairs of these many rows a side, and arbitrary tokens.
PackedBatch PairsOf(const std::vector<int32_t>& source_rows, const std::vector<int32_t>& target_rows,
                    int32_t vocabulary);

// Thread safety: of one thread, which computes (runtime/compute_thread.h) from here on.
class BoundModel {
 public:
  // Weights as initialised, moved off the special values that some start from and to where losses are smooth
  // (moved_parameters.h).
  BoundModel(const ModelOptions& options, PackedBatch batch);
  BoundModel(const BoundModel&) = delete;
  BoundModel& operator=(const BoundModel&) = delete;

  const ModelPlan& plan() const { return plan_; }
  const ParameterStore& parameters() const { return parameters_; }
  const PackedBatch& batch() const { return batch_; }
  const ActivationCapacity& capacity() const { return capacity_; }
  // Of a training step, dropout on, whose gradients are not scaled; without the encoder's output.
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
