#include "kernels/scatter_rows.h"

#include <cstring>

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
  if (stream.device() != nullptr) return stream.device()->kernels().scatter_rows(stream, args);
  const ConstMatrix x = args.x.floats();
  const Matrix y = args.y.floats();
  for (int64_t i = 0; i < x.rows; ++i) {
    std::memcpy(y.row(args.index[i]), x.row(i), x.columns * sizeof(float));
  }
}

}  // namespace hadal
