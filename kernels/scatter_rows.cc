#include "kernels/scatter_rows.h"

#include <cstring>

#include "kernels/device_kernels.h"
#include "runtime/check.h"

namespace hadal {

void ScatterRows(const Stream& stream, const ScatterRowsArgs& args) {
  if (args.x.rows == 0) return;
  HADAL_CHECK_EQ(args.index.size, args.x.rows);
  HADAL_CHECK_EQ(args.y.columns, args.x.columns);
  for (int64_t i = 0; i < args.index.size; ++i) {
    HADAL_CHECK_GE(args.index[i], 0);
    HADAL_CHECK_LT(args.index[i], args.y.rows);
  }
  if (stream.device() != nullptr) return stream.device()->kernels().scatter_rows(stream, args);
  for (int64_t i = 0; i < args.x.rows; ++i) {
    std::memcpy(args.y.row(args.index[i]), args.x.row(i), args.x.columns * sizeof(float));
  }
}

}  // namespace hadal
