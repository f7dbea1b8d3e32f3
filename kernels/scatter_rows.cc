#include "kernels/scatter_rows.h"

#include <cstring>

#include "kernels/cpu/operations.h"
#include "kernels/device_kernels.h"
#include "runtime/check.h"

namespace hadal {

void ScatterRows(const Stream& stream, const ScatterRowsArgs& args) {
  if (args.x.rows == 0) return;
  HADAL_CHECK_EQ(args.index.size, args.x.rows);
  HADAL_CHECK_EQ(args.y.columns, args.x.columns);
  HADAL_CHECK(args.y.storage == args.x.storage);
  for (int64_t i = 0; i < args.index.size; ++i) {
    HADAL_CHECK_GE(args.index[i], 0);
    HADAL_CHECK_LT(args.index[i], args.y.rows);
  }
  if (args.rotary.active()) {
    HADAL_CHECK_EQ(args.positions.size, args.x.rows);
    HADAL_CHECK_LE(2 * args.rotary.half(), args.head_width);
    HADAL_CHECK_EQ(args.turned_columns % args.head_width, 0);
    for (int64_t i = 0; i < args.positions.size; ++i) HADAL_CHECK_LT(args.positions[i], args.rotary.table.rows);
  }
  if (stream.device() != nullptr) return stream.device()->kernels().scatter_rows(stream, args);
  const ConstMatrix x = args.x.floats();
  const Matrix y = args.y.floats();
  for (int64_t i = 0; i < x.rows; ++i) {
    std::memcpy(y.row(args.index[i]), x.row(i), x.columns * sizeof(float));
  }
  if (args.rotary.active()) cpu::TurnScatteredKeys(args);
}

}  // namespace hadal
