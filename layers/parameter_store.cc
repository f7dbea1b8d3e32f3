#include "layers/parameter_store.h"

#include <iterator>

#include "kernels/convert.h"
#include "kernels/linear.h"

namespace hadal {

ParameterStore::ParameterStore(const ModelPlan& plan, const std::vector<int32_t>& sublayers, Purpose purpose,
                               ArenaLayout& layout, const std::vector<SliceRange>& updated)
    : plan_(plan),
      packed_(plan.parameters.size()),
      weight_offset_(plan.parameters.size(), -1),
      gradient_offset_(plan.parameters.size(), -1) {
  for (const int32_t s : sublayers) {
    const SublayerRecord& sublayer = plan.sublayers[s];
    for (int32_t p = 0; p < sublayer.parameters; ++p) owned_.push_back(sublayer.first_parameter + p);
  }
  rounded_elements_ = Place(sublayers, Storage::kBFloat16);
  weight_floats_ = Place(sublayers, Storage::kFloat32);
  purpose == Purpose::kTraining ? PlaceMasters(updated) : AddMasters(0, rounded_elements_);
  weights_ = layout.ReserveLasting<float>("weights", weight_floats_);
  rounded_ = layout.ReserveLasting<BFloat16>("weights", rounded_elements_);
  masters_ = layout.ReserveLasting<float>("weights", master_floats_);
  if (purpose == Purpose::kInference) return;
  gradients_ = layout.Reserve<float>("gradients", gradient_floats_);
}

int64_t ParameterStore::Place(const std::vector<int32_t>& sublayers, Storage storage) {
  const auto is_mine = [&](int32_t p) { return plan_.read_storage(p) == storage; };
  std::vector<GradientRange>& ranges = gradient_ranges_[storage == Storage::kBFloat16 ? 0 : 1];
  int64_t end = 0;
  for (const int32_t s : sublayers) {
    const SublayerRecord& sublayer = plan_.sublayers[s];
    end = AlignedSublayer(end);
    gradient_floats_ = AlignedSublayer(gradient_floats_);
    ranges.push_back({.sublayer = s, .begin = gradient_floats_});
    for (int32_t p = sublayer.first_parameter; p < sublayer.first_parameter + sublayer.parameters; ++p) {
      if (!is_mine(p)) continue;
      weight_offset_[p] = std::exchange(end, end + plan_.parameters[p].elements());
      if (plan_.UsesTable(s, p)) continue;
      gradient_offset_[p] = std::exchange(gradient_floats_, gradient_floats_ + plan_.parameters[p].elements());
    }
    ranges.back().elements = gradient_floats_ - ranges.back().begin;
    if (sublayer.table < 0 || !is_mine(sublayer.table)) continue;
    for (int32_t p = sublayer.table; plan_.UsesTable(s, p); ++p) {
      const int64_t elements = plan_.parameters[p].elements();
      const bool tied = plan_.Uses(p).size() > 1;
      ranges.push_back({.sublayer = s,
                        .table = p,
                        .begin = std::exchange(gradient_floats_, gradient_floats_ + elements),
                        .elements = elements,
                        .tied_offset = tied ? std::exchange(tied_floats_, tied_floats_ + elements) : -1});
    }
  }
  // Tables of other stages come after what this stage updates.
  for (const int32_t s : sublayers) {
    const int32_t table = plan_.sublayers[s].table;
    if (table < 0 || !is_mine(table) || weight_offset_[table] >= 0) continue;
    end = AlignedSublayer(end);
    for (int32_t p = table; plan_.UsesTable(s, p); ++p) {
      weight_offset_[p] = std::exchange(end, end + plan_.parameters[p].elements());
    }
  }
  return end;
}

void ParameterStore::AddMasters(int64_t begin, int64_t end) {
  if (begin == end) return;
  // Runs that are separated only by the gap between two sublayers are one run.
  const bool extends = !master_runs_.empty() && begin <= AlignedSublayer(master_runs_.back().end);
  if (!extends) {
    const int64_t offset = AlignedSublayer(master_floats_) + begin % AlignedSublayer(1);
    master_runs_.push_back({.begin = begin, .offset = offset});
  }
  MasterRun& run = master_runs_.back();
  run.end = end;
  master_floats_ = run.offset + (run.end - run.begin);
}

void ParameterStore::PlaceMasters(const std::vector<SliceRange>& updated) {
  auto range = updated.begin();
  for (const int32_t p : owned_) {
    if (!IsRounded(p)) continue;
    for (int64_t slice = 0; slice < SliceCount(plan_.parameters[p]); ++slice) {
      while (range != updated.end() && range->EndsBefore(p, slice)) ++range;
      if (range == updated.end()) return;
      if (!range->Holds(p, slice)) continue;
      const int64_t first = slice * kSliceElements;
      const int64_t last = std::min(first + kSliceElements, plan_.parameters[p].elements());
      AddMasters(weight_offset_[p] + first, weight_offset_[p] + last);
    }
  }
}

float* ParameterStore::Floats(int32_t parameter, int64_t first, int64_t elements) const {
  HADAL_CHECK_GE(weight_offset_[parameter], 0);
  const int64_t offset = weight_offset_[parameter] + first;
  if (!IsRounded(parameter)) return weights_ + offset;
  const auto behind = std::ranges::upper_bound(master_runs_, offset, {}, &MasterRun::begin);
  if (behind == master_runs_.begin()) return nullptr;
  const MasterRun& run = *std::prev(behind);
  return offset + elements <= run.end ? masters_ + run.offset + (offset - run.begin) : nullptr;
}

Matrix ParameterStore::FusedWeight(int32_t first, int32_t count) const {
  const Matrix shape = Fused(nullptr, 0, first, count);
  float* const data = Floats(first, 0, shape.rows * shape.columns);
  HADAL_CHECK(data != nullptr);  // another replica or stage has the master
  HADAL_CHECK(!packed_[first]);
  return {data, shape.rows, shape.columns};
}

Vector ParameterStore::FusedWeightVector(int32_t first, int32_t count) const {
  if (first < 0) return {};
  const Matrix fused = FusedWeight(first, count);
  return {fused.data, fused.rows * fused.columns};
}

Vector ParameterStore::WeightSlice(int32_t parameter, int64_t slice) const {
  const Vector shape = SliceOf(Vector(nullptr, plan_.parameters[parameter].elements()), slice);
  float* const data = Floats(parameter, slice * kSliceElements, shape.size);
  return data == nullptr ? Vector() : Vector(data, shape.size);
}

ConstAnyMatrix ParameterStore::ProductWeight(int32_t first, int32_t count) const {
  for (int32_t p = first; p < first + count; ++p) HADAL_CHECK_EQ(bool{packed_[p]}, bool{packed_[first]});
  if (!IsRounded(first) && !packed_[first]) return FusedWeight(first, count);
  HADAL_CHECK_GE(weight_offset_[first], 0);
  const Matrix shape = Fused(nullptr, 0, first, count);
  if (packed_[first]) return {weights_ + weight_offset_[first], shape.rows, shape.columns, Storage::kPanels};
  return MatrixOf<const BFloat16>(rounded_ + weight_offset_[first], shape.rows, shape.columns);
}

ConstAnyVector ParameterStore::ProductBias(int32_t first, int32_t count) const {
  if (first < 0 || !IsRounded(first)) return FusedWeightVector(first, count);
  const ConstAnyMatrix bias = ProductWeight(first, count);
  return VectorOf<const BFloat16>(bias.of<BFloat16>().data, bias.rows * bias.columns);
}

VectorOf<BFloat16> ParameterStore::RoundedSlice(int32_t parameter, int64_t slice) const {
  if (!IsRounded(parameter)) return {};
  const int64_t elements = plan_.parameters[parameter].elements();
  return SliceOf(VectorOf<BFloat16>(rounded_ + weight_offset_[parameter], elements), slice);
}

AnyMatrix ParameterStore::AsRead(int32_t parameter) const {
  const int64_t elements = plan_.parameters[parameter].elements();
  if (!IsRounded(parameter)) return Matrix(Floats(parameter, 0, elements), 1, elements);
  return MatrixOf<BFloat16>(rounded_ + weight_offset_[parameter], 1, elements);
}

void ParameterStore::PackWeights() {
  for (const SublayerRecord& sublayer : plan_.sublayers) {
    std::vector<int32_t> weights;
    bool whole = true;
    for (int32_t p = sublayer.first_parameter; p < sublayer.first_parameter + sublayer.parameters; ++p) {
      if (!Holds(p) || IsRounded(p) || !plan_.parameters[p].is_branch_weight()) continue;
      whole = whole && plan_.parameters[p].rows % kPackedRows == 0;
      weights.push_back(p);
    }
    if (!whole) continue;  // else of q, k, v and the gate, which are one product, some would be packed
    for (const int32_t p : weights) {
      PackWeight(Weight(p));
      packed_[p] = true;
    }
  }
}

void ParameterStore::RoundMasters(const Stream& stream) const {
  for (const MasterRun& run : master_runs_) {
    const int64_t elements = run.end - run.begin;
    Convert(stream, {.from = ConstMatrix(masters_ + run.offset, 1, elements),
                     .to = MatrixOf<BFloat16>(rounded_ + run.begin, 1, elements)});
  }
}

Vector ParameterStore::FusedGradientVector(int32_t first, int32_t count) const {
  if (first < 0) return {};
  const Matrix fused = FusedGradient(first, count);
  return {fused.data, fused.rows * fused.columns};
}

const ParameterStore::GradientRange& ParameterStore::TableRange(int32_t sublayer, int32_t parameter) const {
  const std::vector<GradientRange>& ranges = gradient_ranges(plan_.read_storage(parameter));
  const auto range = std::ranges::find_if(
      ranges, [&](const GradientRange& r) { return r.sublayer == sublayer && r.table == parameter; });
  HADAL_CHECK(range != ranges.end());  // this rank has no such table use
  return *range;
}

Matrix ParameterStore::TableGradient(int32_t sublayer, int32_t parameter) const {
  return View(gradients_, TableRange(sublayer, parameter).begin, parameter);
}

Matrix ParameterStore::View(float* base, int64_t offset, int32_t parameter) const {
  return Fused(base, offset, parameter, 1);
}

Matrix ParameterStore::Fused(float* base, int64_t offset, int32_t first, int32_t count) const {
  HADAL_CHECK_GE(offset, 0);
  int64_t rows = 0;
  for (int32_t p = first; p < first + count; ++p) rows += plan_.parameters[p].rows;
  return {base + offset, rows, plan_.parameters[first].columns};
}

}  // namespace hadal
