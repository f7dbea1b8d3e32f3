#include "layers/residual_profile.h"

#include <algorithm>
#include <cmath>

#include "runtime/host_values.h"

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

void ResidualProfile::Begin(const Stream& stream, const ParameterStore& parameters, int32_t sublayer) {
  const SublayerRecord& record = parameters.plan().sublayers[sublayer];
  if (record.layer == 0 && record.kind == SublayerKind::kSelfAttention) omega = 1;
  const int32_t parameter = parameters.plan().ParameterOf(sublayer, ParameterRole::kOmega);
  FillOmega(stream, parameters.WeightVector(parameter), omega);
  found.push_back({parameter, omega});
}

void ResidualProfile::End(const Stream& stream, const SublayerRecord& record, ConstAnyMatrix x, ConstAnyMatrix sum) {
  const std::vector<float> x_values = HostValues(stream, x), sum_values = HostValues(stream, sum);
  const double gain = double{record.residual_gain} * static_cast<float>(omega);
  Variance carried, added;
  for (size_t i = 0; i < x_values.size(); ++i) {
    const double residual = gain * x_values[i];
    carried.Add(residual);
    added.Add(sum_values[i] - residual);
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
