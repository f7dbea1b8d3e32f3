#include "runtime/host_values.h"

#include <algorithm>

namespace hadal {

std::vector<float> HostValues(const Stream& stream, const ConstAnyMatrix& matrix) {
  std::vector<float> values(matrix.rows * matrix.columns);
  if (matrix.storage == Storage::kFloat32) {
    stream.ToHost(values.data(), matrix.data, matrix.bytes());
    return values;
  }
  std::vector<BFloat16> stored(values.size());
  stream.ToHost(stored.data(), matrix.data, matrix.bytes());
  std::transform(stored.begin(), stored.end(), values.begin(), Widened);
  return values;
}

}  // namespace hadal
