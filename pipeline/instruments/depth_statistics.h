// The observer that the instruments use: a few sums for each tensor of each sublayer, over the micro-batches of one
// program.
//
// Numerics: squares are summed in double over blocks of kBlock elements, blocks and then micro-batches in ascending
// order (every chunk runs its micro-batches in that order), so that the sums are the same bits for every number of
// stages and threads, every schedule, with and without activation checkpointing. Cosines are taken a row in double and
// added in row order.
// Memory: a few numbers a sublayer and the scratch of one tensor's blocks, all allocated by the constructor. Thread
// safety: as the observer's.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "layers/depth_observer.h"
#include "layers/model_plan.h"
#include "layers/sublayer_context.h"

namespace hadal {

struct TensorSums {
  double squares = 0;   // Σ x²
  double elements = 0;  // how many
  double non_zero = 0;  // kHidden: how many are not 0
  double cosines = 0;   // kOutput: Σ over rows of cos(row, the row before the sublayer)
  double rows = 0;      // … and over how many rows (none of the two all zero)
  bool operator==(const TensorSums&) const = default;
};

class DepthStatistics : public DepthObserver {
 public:
  static constexpr int64_t kBlock = 16384;

  // Sums up the given tensors and passes over all others.
  DepthStatistics(const ModelPlan& plan, const ActivationCapacity& capacity,
                  std::initializer_list<DepthTensor> tensors);

  void Observe(const Stream& stream, int32_t micro_batch, const DepthObservation& observation) override;
  void Clear();

  // elements = 0: this rank has not seen it since Clear.
  const TensorSums& sums(int32_t sublayer, DepthTensor tensor) const {
    return sums_[sublayer * kDepthTensors + static_cast<int32_t>(tensor)];
  }
  // The model's output of the last micro-batch, where the head is, if kModelOutput was asked for; else empty.  [rows·d]
  const std::vector<float>& model_output() const { return model_output_; }

 private:
  double SumSquares(const Stream& stream, ConstVector values);
  void AddCosines(const Stream& stream, const DepthObservation& observation, TensorSums& sums);

  std::array<bool, kDepthTensors> wanted_{};
  std::vector<TensorSums> sums_;       // [sublayers · kDepthTensors]
  std::vector<double> block_squares_;  // scratch
  std::vector<double> row_cosines_;    // scratch; NaN where a row is all zero
  std::vector<float> model_output_;
};

// Σ over all micro-batches of all ranks of one pipeline: a tensor is whole on one rank.
double RootMeanSquare(const TensorSums& sums);

}  // namespace hadal
