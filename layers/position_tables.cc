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

RotaryTables::RotaryTables(const ModelPlan& plan, ArenaLayout& layout)
    : positions_(plan.options.max_positions), columns_(plan.options.rotary_width()) {
  const Block& block = plan.options.block;
  if (block.positions != Positions::kRotary) return;
  const auto reserve = [&](Table& table, double theta) {
    table.theta = theta;
    table.slice = layout.ReserveLasting<float>("weights", positions_ * columns_);
  };
  reserve(global_, block.rotary_theta);
  global_.scaling = {block.rotary_scaling, static_cast<double>(block.rotary_scaling_positions)};
  if (block.rotary_local_theta != 0) reserve(local_, block.rotary_local_theta);
}

void RotaryTables::Bind(const Arena& arena) {
  for (Table* const table : {&global_, &local_}) {
    if (table->theta == 0) continue;
    const Matrix angles(arena.Get<float>(table->slice), positions_, columns_);
    Place(arena, angles, [table](Matrix to) { FillRotaryTable(table->theta, to, table->scaling); });
    table->rotary.table = angles;
  }
}

}  // namespace hadal
