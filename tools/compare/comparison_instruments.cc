#include "tools/compare/comparison_instruments.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace hadal {
namespace {

std::optional<double> Ratio(float numerator, float denominator) {
  if (!std::isfinite(numerator) || !std::isfinite(denominator) || denominator == 0) return std::nullopt;
  return static_cast<double>(numerator) / denominator;
}

std::optional<double> Mean(const DepthMetrics* record, DepthSeries series) {
  if (record == nullptr) return std::nullopt;
  double sum = 0;
  int count = 0;
  for (const float value : (*record)[series]) {
    if (!std::isfinite(value)) continue;
    sum += value;
    ++count;
  }
  return count == 0 ? std::nullopt : std::optional<double>(sum / count);
}

void ReadGradientRatios(const RunRecord& run, CellInstruments& instruments) {
  const DepthMetrics* first = FirstRecord(run, DepthSeries::kOutputGradient);
  if (first == nullptr) return;
  const std::vector<float>& gradient = (*first)[DepthSeries::kOutputGradient];
  const size_t border = static_cast<size_t>(run.encoder_sublayers);
  if (border > 0 && border <= gradient.size()) {
    instruments.gradient_ratio_encoder = Ratio(gradient.front(), gradient[border - 1]);
  }
  if (border < gradient.size()) instruments.gradient_ratio_decoder = Ratio(gradient[border], gradient.back());
}

std::optional<double> NormGradientRatio(const RunRecord& run) {
  const DepthMetrics* first = FirstRecord(run, DepthSeries::kNormInputGradient);
  if (first == nullptr) return std::nullopt;
  const std::vector<float>& input = (*first)[DepthSeries::kNormInputGradient];
  const std::vector<float>& output = (*first)[DepthSeries::kNormOutputGradient];
  double sum = 0;
  int count = 0;
  for (size_t i = 0; i < std::min(input.size(), output.size()); ++i) {
    const std::optional<double> ratio = Ratio(input[i], output[i]);
    if (!ratio || *ratio <= 0) continue;
    sum += std::log(*ratio);
    ++count;
  }
  return count == 0 ? std::nullopt : std::optional<double>(std::exp(sum / count));
}

void ReadModelUpdate(const RunRecord& run, CellInstruments& instruments) {
  for (const DepthMetrics& record : run.depth) {
    if (!record.model_update || !std::isfinite(*record.model_update)) continue;
    if (record.update <= kEarlyUpdate) instruments.early_model_update = record.model_update;
    instruments.model_update = record.model_update;
  }
}

}  // namespace

const DepthMetrics* FirstRecord(const RunRecord& run, DepthSeries series) {
  for (const DepthMetrics& record : run.depth) {
    if (!record[series].empty()) return &record;
  }
  return nullptr;
}

const DepthMetrics* LastRecord(const RunRecord& run, DepthSeries series) {
  for (auto record = run.depth.rbegin(); record != run.depth.rend(); ++record) {
    if (!(*record)[series].empty()) return &*record;
  }
  return nullptr;
}

CellInstruments ReadInstruments(const RunRecord& run) {
  CellInstruments instruments;
  ReadGradientRatios(run, instruments);
  instruments.norm_gradient_ratio = NormGradientRatio(run);
  ReadModelUpdate(run, instruments);
  instruments.similarity = Mean(LastRecord(run, DepthSeries::kSimilarity), DepthSeries::kSimilarity);
  instruments.active = Mean(LastRecord(run, DepthSeries::kActive), DepthSeries::kActive);
  return instruments;
}

}  // namespace hadal
