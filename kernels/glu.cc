#include "kernels/glu.h"

#include <cmath>

#include "kernels/device_kernels.h"
#include "runtime/check.h"

namespace hadal {
namespace {

// e^|t| may be infinite, and the result is then 0 or 1.
float Sigmoid(float t) { return 1 / (1 + std::exp(-t)); }

void CheckShapes(const ConstAnyMatrix& z, const ConstAnyMatrix& y) {
  HADAL_CHECK_EQ(z.columns, 2 * y.columns);
  HADAL_CHECK_EQ(z.rows, y.rows);
}

}  // namespace

void GluForward(const Stream& stream, const GluForwardArgs& args) {
  CheckShapes(args.z, args.y);
  if (stream.device() != nullptr) return stream.device()->kernels().glu_forward(stream, args);
  const ConstMatrix z_rows = args.z.floats();
  const Matrix y_rows = args.y.floats();
  const int64_t width = y_rows.columns;
  stream.ForRanges(y_rows.rows, 4, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* const z = z_rows.row(r);
      float* const y = y_rows.row(r);
      for (int64_t c = 0; c < width; ++c) y[c] = z[c] * Sigmoid(z[width + c]);
    }
  });
}

void GluBackward(const Stream& stream, const GluBackwardArgs& args) {
  CheckShapes(args.z, args.dy);
  if (stream.device() != nullptr) return stream.device()->kernels().glu_backward(stream, args);
  const Matrix z_rows = args.z.floats();
  const int64_t width = args.dy.columns;
  stream.ForRanges(args.dy.rows, 4, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* const dy = args.dy.row(r);
      float* const z = z_rows.row(r);
      for (int64_t c = 0; c < width; ++c) {
        const float gate = Sigmoid(z[width + c]);
        z[width + c] = dy[c] * z[c] * gate * (1 - gate);
        z[c] = dy[c] * gate;
      }
    }
  });
}

}  // namespace hadal
