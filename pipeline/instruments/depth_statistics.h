// DepthStatistics is the observer of the depth instruments: it computes a few sums for each tensor of each sublayer
// (DepthTensor, layers/depth_observer.h).
// Sums grow with every micro-batch that the engine runs (a step's or the probe's) until Clear.
// Numerics: squares are summed in double over blocks of kBlock elements; blocks and then micro-batches are added in
// ascending order (every chunk runs its micro-batches in that order). So the sums are bit-identical for every number of
// stages and threads, every schedule, with and without recomputation. Cosines are computed per row in double
// and added in row order.
// Memory: a few numbers per sublayer and scratch for one tensor's blocks, allocated by the constructor.
// Thread safety: see DepthObserver.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "layers/chunk_part.h"
#include "layers/depth_observer.h"
#include "layers/model_plan.h"

namespace hadal {

struct TensorSums {
  double squares = 0;   // Σ x²
  double elements = 0;  // count
  double non_zero = 0;  // kHidden: count of those that are not 0
  double cosines = 0;   // kOutput: Σ over rows of cos(row, the same row before the sublayer)
  double rows = 0;      // count of the rows in `cosines`; a row is left out if either vector is all zero
  bool operator==(const TensorSums&) const = default;
};

class DepthStatistics : public DepthObserver {
 public:
  static constexpr int64_t kBlock = 16384;

  // Sums the given tensors and ignores all others.
  DepthStatistics(const ModelPlan& plan, const ActivationCapacity& capacity,
                  std::initializer_list<DepthTensor> tensors);

  void Observe(const Stream& stream, int32_t micro_batch, const DepthObservation& observation) override;
  // Sets all sums to 0 and model_output() to empty. The caller calls it before each step or probe that it measures.
  void Clear();

  // elements = 0: this rank has not seen the tensor since Clear.
  const TensorSums& sums(int32_t sublayer, DepthTensor tensor) const {
    return sums_[sublayer * kDepthTensors + static_cast<int32_t>(tensor)];
  }
  // The model's output in the last micro-batch, on the head's rank, if kModelOutput is recorded; else empty.  [rows·d]
  const std::vector<float>& model_output() const { return model_output_; }

 private:
  double SumSquares(const Stream& stream, ConstVector values);
  void AddCosines(const Stream& stream, const DepthObservation& observation, TensorSums& sums);

  std::array<bool, kDepthTensors> wanted_{};
  std::vector<TensorSums> sums_;       // [sublayers · kDepthTensors]
  std::vector<double> block_squares_;  // scratch
  std::vector<double> row_cosines_;    // scratch; NaN if either row is all zero
  std::vector<float> model_output_;
};

// Returns sqrt(squares / elements), the tensor's root mean square: one rank of a pipeline sees all of its elements.
double RootMeanSquare(const TensorSums& sums);

}  // namespace hadal
