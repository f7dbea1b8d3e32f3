#include "kernels/glu.h"

#include <cmath>

#include "runtime/check.h"

namespace hadal {
namespace {

// e^|t| may be infinite, and the result is then 0 or 1.
float Sigmoid(float t) { return 1 / (1 + std::exp(-t)); }

void CheckShapes(const Stream& stream, const ConstMatrix& z, const ConstMatrix& y) {
  HADAL_CHECK(stream.device() == nullptr);
  HADAL_CHECK_EQ(z.columns, 2 * y.columns);
  HADAL_CHECK_EQ(z.rows, y.rows);
}

}  // namespace

void GluForward(const Stream& stream, const GluForwardArgs& args) {
  CheckShapes(stream, args.z, args.y);
  const int64_t width = args.y.columns;
  stream.ForRanges(args.y.rows, 4, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* const z = args.z.row(r);
      float* const y = args.y.row(r);
      for (int64_t c = 0; c < width; ++c) y[c] = z[c] * Sigmoid(z[width + c]);
    }
  });
}

void GluBackward(const Stream& stream, const GluBackwardArgs& args) {
  CheckShapes(stream, args.z, args.dy);
  const int64_t width = args.dy.columns;
  stream.ForRanges(args.dy.rows, 4, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* const dy = args.dy.row(r);
      float* const z = args.z.row(r);
      for (int64_t c = 0; c < width; ++c) {
        const float gate = Sigmoid(z[width + c]);
        z[width + c] = dy[c] * z[c] * gate * (1 - gate);
        z[c] = dy[c] * gate;
      }
    }
  });
}

}  // namespace hadal
