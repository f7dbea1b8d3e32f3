#include "layers/parameter_store.h"

#include <utility>

#include "kernels/convert.h"

namespace hadal {

ParameterStore::ParameterStore(const ModelPlan& plan, const std::vector<int32_t>& sublayers, bool training,
                               ArenaLayout& layout)
    : plan_(plan), weight_offset_(plan.parameters.size(), -1), gradient_offset_(plan.parameters.size(), -1) {
  for (const int32_t s : sublayers) {
    const SublayerRecord& sublayer = plan.sublayers[s];
    weight_floats_ = AlignedSublayer(weight_floats_);
    gradient_floats_ = AlignedSublayer(gradient_floats_);
    for (int32_t p = sublayer.first_parameter; p < sublayer.first_parameter + sublayer.parameters; ++p) {
      const int64_t elements = plan.parameters[p].elements();
      owned_.push_back(p);
      weight_offset_[p] = weight_floats_;
      weight_floats_ += elements;
      if (p == sublayer.table) continue;
      gradient_offset_[p] = gradient_floats_;
      gradient_floats_ += elements;
    }
    if (sublayer.table < 0) continue;
    const int64_t elements = plan.parameters[sublayer.table].elements();
    if (weight_offset_[sublayer.table] < 0) {
      weight_offset_[sublayer.table] = weight_floats_;
      weight_floats_ += elements;
    }
    table_uses_.push_back({s, gradient_floats_});
    gradient_floats_ += elements;
  }
  weight_slice_ = layout.Reserve<float>("weights", weight_floats_);
  if (plan.compute_storage == Storage::kBFloat16) rounded_slice_ = layout.Reserve<BFloat16>("weights", weight_floats_);
  if (!training) return;
  gradient_slice_ = layout.Reserve<float>("gradients", gradient_floats_);
}

void ParameterStore::Bind(const Arena& arena) {
  weights_ = arena.Get<float>(weight_slice_);
  if (plan_.compute_storage == Storage::kBFloat16) rounded_ = arena.Get<BFloat16>(rounded_slice_);
  gradients_ = arena.Get<float>(gradient_slice_);
}

Vector ParameterStore::FusedWeightVector(int32_t first, int32_t count) const {
  if (first < 0) return {};
  const Matrix fused = FusedWeight(first, count);
  return {fused.data, fused.rows * fused.columns};
}

ConstAnyMatrix ParameterStore::ProductWeight(int32_t first, int32_t count) const {
  const Matrix weight = FusedWeight(first, count);
  if (rounded_ == nullptr) return weight;
  return MatrixOf<const BFloat16>(rounded_ + weight_offset_[first], weight.rows, weight.columns);
}

ConstAnyVector ParameterStore::ProductBias(int32_t first, int32_t count) const {
  const Vector bias = FusedWeightVector(first, count);
  if (rounded_ == nullptr || bias.empty()) return bias;
  return RoundedOf(bias);
}

VectorOf<BFloat16> ParameterStore::RoundedOf(ConstVector weight) const {
  if (rounded_ == nullptr) return {};
  const int64_t offset = weight.data - weights_;
  HADAL_CHECK(offset >= 0 && offset + weight.size <= weight_floats_);
  return {rounded_ + offset, weight.size};
}

void ParameterStore::Round(const Stream& stream, ConstVector weight) const {
  const VectorOf<BFloat16> rounded = RoundedOf(weight);
  if (rounded.empty()) return;
  Convert(stream,
          {.from = ConstMatrix(weight.data, 1, weight.size), .to = MatrixOf<BFloat16>(rounded.data, 1, rounded.size)});
}

Vector ParameterStore::FusedGradientVector(int32_t first, int32_t count) const {
  if (first < 0) return {};
  const Matrix fused = FusedGradient(first, count);
  return {fused.data, fused.rows * fused.columns};
}

Matrix ParameterStore::TableGradient(int32_t sublayer) const {
  for (const TableUse& use : table_uses_) {
    if (use.sublayer == sublayer) return View(gradients_, use.gradient_offset, plan_.sublayers[sublayer].table);
  }
  HADAL_CHECK(false && "this rank has no such table use");
  return {};
}

Matrix ParameterStore::View(float* base, int64_t offset, int32_t parameter) const {
  HADAL_CHECK_GE(offset, 0);
  const ParameterRecord& record = plan_.parameters[parameter];
  return {base + offset, record.rows, record.columns};
}

Vector ParameterStore::Flat(float* base, int64_t offset, int32_t parameter) const {
  HADAL_CHECK_GE(offset, 0);
  return {base + offset, plan_.parameters[parameter].elements()};
}

Matrix ParameterStore::Fused(float* base, int64_t offset, int32_t first, int32_t count) const {
  HADAL_CHECK_GE(offset, 0);
  int64_t rows = 0;
  for (int32_t p = first; p < first + count; ++p) rows += plan_.parameters[p].rows;
  return {base + offset, rows, plan_.parameters[first].columns};
}

}  // namespace hadal
