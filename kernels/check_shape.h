// Checks an argument of an operation: `m` is given and has this shape (aborts otherwise).
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
