#include "layers/residual_profile.h"

#include <algorithm>
#include <cmath>

namespace hadal {
namespace {

// The variance of the values that are added to it.
class Variance {
 public:
  void Add(double value) {
    ++count_;
    sum_ += value;
    squares_ += value * value;
  }
  double value() const {
    const double n = static_cast<double>(std::max<int64_t>(count_, 1)), mean = sum_ / n;
    return squares_ / n - mean * mean;
  }

 private:
  int64_t count_ = 0;
  double sum_ = 0, squares_ = 0;
};

}  // namespace

void ResidualProfile::Begin(const ParameterStore& parameters, int32_t sublayer) {
  const SublayerRecord& record = parameters.plan().sublayers[sublayer];
  if (record.layer == 0 && record.kind == SublayerKind::kSelfAttention) omega = 1;
  const int32_t parameter = parameters.plan().ParameterOf(sublayer, ParameterRole::kOmega);
  const Vector vector = parameters.WeightVector(parameter);
  std::fill_n(vector.data, vector.size, static_cast<float>(omega));
  found.push_back({parameter, omega});
}

void ResidualProfile::End(const SublayerRecord& record, ConstMatrix x, ConstMatrix sum) {
  const double gain = double{record.residual_gain} * static_cast<float>(omega);
  Variance carried, added;
  for (int64_t row = 0; row < x.rows; ++row) {
    for (int64_t c = 0; c < x.columns; ++c) {
      const double residual = gain * x.row(row)[c];
      carried.Add(residual);
      added.Add(sum.row(row)[c] - residual);
    }
  }
  omega = std::sqrt(carried.value() + added.value());
}

bool IsProfiled(const ModelPlan& plan, Stack stack) {
  return (stack == Stack::kEncoder ? plan.options.encoder : plan.options.decoder).omega == Omega::kProfiled;
}

bool IsProfiled(const ModelPlan& plan) {
  return IsProfiled(plan, Stack::kEncoder) || IsProfiled(plan, Stack::kDecoder);
}

}  // namespace hadal
