// A check of an operation's arguments: `m` is there and has this shape.
#pragma once

#include <cstdint>

#include "runtime/check.h"
#include "runtime/tensor.h"

namespace hadal {

inline void CheckShape(const ConstAnyMatrix& m, int64_t rows, int64_t columns) {
  HADAL_CHECK(!m.empty());
  HADAL_CHECK_EQ(m.rows, rows);
  HADAL_CHECK_EQ(m.columns, columns);
}

}  // namespace hadal
