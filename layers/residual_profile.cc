#include "layers/residual_profile.h"

#include <algorithm>
#include <cmath>

namespace hadal {
namespace {

// The variance of the values given to Add.
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

void FillOmega(const Stream& stream, Vector omega, double value) {
  const std::vector<float> values(omega.size, static_cast<float>(value));
  stream.FromHost(omega.data, values.data(), omega.size * int64_t{sizeof(float)});
}

void ResidualProfile::Observe(const Stream& stream, int32_t /*micro_batch*/, const DepthObservation& observation) {
  const ModelPlan& plan = parameters_.plan();
  const SublayerRecord& record = plan.sublayers[observation.sublayer];
  const int32_t parameter = plan.ParameterOf(observation.sublayer, ParameterRole::kOmega);
  if (parameter < 0 || !IsProfiled(plan, record.stack)) return;
  switch (observation.tensor) {
    case DepthTensor::kBranch:
      return SetOmega(record, parameter);
    case DepthTensor::kNormInput:
      sum_ = HostValues(stream, observation.values);
      return;
    case DepthTensor::kOutput:
      return Measure(record, HostValues(stream, observation.before), sum_);
    default:
      return;
  }
}

void ResidualProfile::SetOmega(const SublayerRecord& record, int32_t parameter) {
  if (record.layer == 0 && record.kind == SublayerKind::kSelfAttention) omega = 1;
  FillOmega(stream_, parameters_.WeightVector(parameter), omega);
  found.push_back({parameter, omega});
}

void ResidualProfile::Measure(const SublayerRecord& record, const std::vector<float>& x,
                              const std::vector<float>& sum) {
  const double gain = double{record.residual_gain} * static_cast<float>(omega);
  Variance carried, added;
  for (size_t i = 0; i < x.size(); ++i) {
    const double residual = gain * x[i];
    carried.Add(residual);
    added.Add(sum[i] - residual);
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
