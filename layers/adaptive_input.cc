#include "layers/adaptive_input.h"

#include <algorithm>
#include <numeric>

#include "kernels/embedding.h"
#include "kernels/linear.h"
#include "runtime/check.h"

namespace hadal {

AdaptiveInput::AdaptiveInput(const ModelPlan& plan, int32_t sublayer, int64_t rows, Purpose purpose,
                             ArenaLayout& layout)
    : sublayer_(sublayer),
      table_(plan.sublayers[sublayer].table),
      width_(plan.options.d_model),
      rows_(rows),
      bands_(AdaptiveBands(plan.options)) {
  block_slice_ = layout.Reserve<float>("workspace", 2 * kAdaptiveRows * width_);
  index_slice_ = layout.Reserve<int32_t>("workspace", 2 * kAdaptiveRows);
  number_slice_ = layout.ReserveLasting<int32_t>("weights", rows);
  if (purpose == Purpose::kTraining) gradient_slice_ = layout.Reserve<float>("workspace", rows * width_);
}

void AdaptiveInput::Bind(const Arena& arena) {
  block_ = arena.Get<float>(block_slice_);
  index_ = arena.Get<int32_t>(index_slice_);
  row_numbers_ = arena.Get<int32_t>(number_slice_);
  gradient_ = arena.Get<float>(gradient_slice_);
  if (arena.device() == nullptr) std::iota(row_numbers_, row_numbers_ + rows_, 0);
}

Matrix AdaptiveInput::ClearedGradient(int64_t rows) const {
  HADAL_CHECK_LE(rows, rows_);
  std::fill_n(gradient_, rows * width_, 0.0f);
  return {gradient_, rows, width_};
}

Matrix AdaptiveInput::Gather(const ParameterStore& parameters, const AdaptiveBand& band, ConstTokens tokens,
                             ConstTokens rows) const {
  const ConstMatrix table = parameters.ProductWeight(table_ + TableOfBand(band.index)).floats();
  const Matrix gathered(block_, rows.size, band.width);
  for (int64_t i = 0; i < rows.size; ++i) {
    const int32_t place = index_[kAdaptiveRows + i] = tokens[rows[i]] - band.first;
    std::copy_n(table.row(place), band.width, gathered.row(i));
  }
  return gathered;
}

void AdaptiveInput::Lookup(const Stream& stream, const ParameterStore& parameters, ConstTokens tokens, Matrix x) const {
  HADAL_CHECK(stream.device() == nullptr);
  const int32_t bands = static_cast<int32_t>(bands_.size());
  for (const AdaptiveBand& band : bands_) {
    const ConstAnyMatrix projection = parameters.ProductWeight(table_ + ProjectionOfBand(band.index, bands));
    ForBandRows(tokens, band, {index_, kAdaptiveRows}, [&](ConstTokens rows) {
      const Matrix projected(block_ + kAdaptiveRows * width_, rows.size, width_);
      LinearForward(stream, {.x = Gather(parameters, band, tokens, rows), .weight = projection, .y = projected});
      for (int64_t i = 0; i < rows.size; ++i) std::copy_n(projected.row(i), width_, x.row(rows[i]));
    });
  }
}

void AdaptiveInput::AddGradients(const Stream& stream, const ParameterStore& parameters, ConstTokens tokens,
                                 ConstMatrix d_x) const {
  const int32_t bands = static_cast<int32_t>(bands_.size());
  for (const AdaptiveBand& band : bands_) {
    const int32_t projection = table_ + ProjectionOfBand(band.index, bands);
    const int32_t table = table_ + TableOfBand(band.index);
    ForBandRows(tokens, band, {index_, kAdaptiveRows}, [&](ConstTokens rows) {
      const Matrix d_projected(block_ + kAdaptiveRows * width_, rows.size, width_);
      for (int64_t i = 0; i < rows.size; ++i) std::copy_n(d_x.row(rows[i]), width_, d_projected.row(i));
      const Matrix gathered = Gather(parameters, band, tokens, rows);
      LinearBackwardWeight(
          stream, {.dy = d_projected, .x = gathered, .d_weight = parameters.TableGradient(sublayer_, projection)});
      LinearBackwardInput(stream, {.dy = d_projected, .weight = parameters.ProductWeight(projection), .dx = gathered});
      EmbeddingBackward(stream, {.tokens = {index_ + kAdaptiveRows, rows.size},
                                 .dx = gathered,
                                 .d_table = parameters.TableGradient(sublayer_, table)});
    });
  }
}

}  // namespace hadal
