#include "layers/position_tables.h"

#include <functional>
#include <vector>

#include "kernels/embedding.h"

namespace hadal {
namespace {

void Place(const Arena& arena, Matrix table, const std::function<void(Matrix)>& fill) {
  if (arena.device() == nullptr) return fill(table);
  std::vector<float> values(table.rows * table.columns);
  fill({values.data(), table.rows, table.columns});
  arena.device()->CopyIn(table.data, values.data(), static_cast<int64_t>(values.size() * sizeof(float)));
}

}  // namespace

void PlacePositions(const Arena& arena, Matrix positions) { Place(arena, positions, FillSinusoidalPositions); }

RotaryTable::RotaryTable(const ModelPlan& plan, ArenaLayout& layout) {
  const ModelOptions& model = plan.options;
  if (model.block.positions != Positions::kRotary) return;
  positions_ = model.max_positions, columns_ = model.rotary_width(), theta_ = model.block.rotary_theta;
  slice_ = layout.ReserveLasting<float>("weights", positions_ * columns_);
}

void RotaryTable::Bind(const Arena& arena) {
  if (columns_ == 0) return;
  const Matrix table(arena.Get<float>(slice_), positions_, columns_);
  Place(arena, table, [this](Matrix to) { FillRotaryTable(theta_, to); });
  rotary_.table = table;
}

}  // namespace hadal
