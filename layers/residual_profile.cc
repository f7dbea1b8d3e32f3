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

// A contiguous matrix as the host can read it.
class HostCopy {
 public:
  HostCopy(const Stream& stream, ConstMatrix m) : columns_(m.columns), values_(m.rows * m.columns) {
    HADAL_CHECK_EQ(m.stride, m.columns);
    stream.ToHost(values_.data(), m.data, static_cast<int64_t>(values_.size() * sizeof(float)));
  }
  const float* row(int64_t i) const { return values_.data() + i * columns_; }

 private:
  int64_t columns_;
  std::vector<float> values_;
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

void ResidualProfile::End(const Stream& stream, const SublayerRecord& record, ConstMatrix x, ConstMatrix sum) {
  const HostCopy x_values(stream, x), sum_values(stream, sum);
  const double gain = double{record.residual_gain} * static_cast<float>(omega);
  Variance carried, added;
  for (int64_t row = 0; row < x.rows; ++row) {
    for (int64_t c = 0; c < x.columns; ++c) {
      const double residual = gain * x_values.row(row)[c];
      carried.Add(residual);
      added.Add(sum_values.row(row)[c] - residual);
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
