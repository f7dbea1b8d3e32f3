#include "pipeline/instruments/depth_statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/sum_of_squares.h"
#include "runtime/check.h"

namespace hadal {
namespace {

constexpr int64_t kRowsAtATime = 16;
constexpr int64_t kLanes = 8;

// Sum i takes the elements i, i + kLanes, …: an order of its own, whatever the compiler makes of it.
double Dot(const float* a, const float* b, int64_t n) {
  std::array<double, kLanes> sums{};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += static_cast<double>(a[i + lane]) * b[i + lane];
  }
  for (int64_t lane = 0; i < n; ++i, ++lane) sums[lane] += static_cast<double>(a[i]) * b[i];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

ConstVector Flat(ConstMatrix m) {
  HADAL_CHECK_EQ(m.stride, m.columns);
  return {m.data, m.rows * m.columns};
}

int64_t CountNonZero(ConstVector values) {
  int64_t count = 0;
  for (int64_t i = 0; i < values.size; ++i) count += values[i] != 0 ? 1 : 0;
  return count;
}

}  // namespace

DepthStatistics::DepthStatistics(const ModelPlan& plan, const ActivationCapacity& capacity,
                                 std::initializer_list<DepthTensor> tensors)
    : sums_(plan.sublayers.size() * kDepthTensors) {
  for (const DepthTensor tensor : tensors) wanted_[static_cast<size_t>(tensor)] = true;
  const int64_t rows = std::max(capacity.source_rows, capacity.target_rows);
  const int32_t streams = std::max(plan.Residuals(Stack::kEncoder), plan.Residuals(Stack::kDecoder));
  const int64_t width = std::max(streams * plan.options.d_model, plan.options.d_ff);
  block_squares_.resize((rows * width + kBlock - 1) / kBlock);
  row_cosines_.resize(rows);
  model_output_.reserve(capacity.target_rows * plan.options.d_model);
}

void DepthStatistics::Clear() {
  std::fill(sums_.begin(), sums_.end(), TensorSums());
  model_output_.clear();
}

double DepthStatistics::SumSquares(const Stream& stream, ConstVector values) {
  const int64_t blocks = (values.size + kBlock - 1) / kBlock;
  HADAL_CHECK_LE(blocks, static_cast<int64_t>(block_squares_.size()));
  stream.ForRanges(blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = b * kBlock;
      block_squares_[b] = SumOfSquares({values.data + first, std::min(kBlock, values.size - first)});
    }
  });
  double sum = 0;
  for (int64_t b = 0; b < blocks; ++b) sum += block_squares_[b];
  return sum;
}

void DepthStatistics::AddCosines(const Stream& stream, const DepthObservation& observation, TensorSums& sums) {
  const ConstMatrix a = observation.before.floats(), b = observation.values.floats();
  HADAL_CHECK_EQ(a.rows, b.rows);
  stream.ForRanges(b.rows, kRowsAtATime, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const double squares = Dot(a.row(r), a.row(r), a.columns) * Dot(b.row(r), b.row(r), b.columns);
      row_cosines_[r] = squares == 0 ? std::numeric_limits<double>::quiet_NaN()
                                     : Dot(a.row(r), b.row(r), a.columns) / std::sqrt(squares);
    }
  });
  for (int64_t r = 0; r < b.rows; ++r) {
    if (std::isnan(row_cosines_[r])) continue;
    sums.cosines += row_cosines_[r];
    sums.rows += 1;
  }
}

void DepthStatistics::Observe(const Stream& stream, int32_t micro_batch, const DepthObservation& observation) {
  if (!wanted_[static_cast<size_t>(observation.tensor)]) return;
  TensorSums& sums = sums_[observation.sublayer * kDepthTensors + static_cast<int32_t>(observation.tensor)];
  const ConstVector values = Flat(observation.values.floats());
  const double factor = observation.factor;
  sums.squares += SumSquares(stream, values) / (factor * factor);
  sums.elements += static_cast<double>(values.size);
  if (observation.tensor == DepthTensor::kHidden) sums.non_zero += static_cast<double>(CountNonZero(values));
  if (!observation.before.empty()) AddCosines(stream, observation, sums);
  if (observation.tensor == DepthTensor::kModelOutput) model_output_.assign(values.data, values.data + values.size);
}

double RootMeanSquare(const TensorSums& sums) { return std::sqrt(sums.squares / sums.elements); }

}  // namespace hadal
