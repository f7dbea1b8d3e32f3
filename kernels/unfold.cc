#include "kernels/unfold.h"

#include <algorithm>

#include "kernels/device_kernels.h"
#include "runtime/check.h"

namespace hadal {
namespace {

constexpr int64_t kMargin = kConvolutionTaps / 2;

// Calls body(row, first, begin, end) for rows [from, to) of u, ascending: tap k of the row is row first + k of x, and
// inside its sentence for k in [begin, end).
template <typename Body>
void ForTaps(ConstTokens x_offsets, ConstTokens u_offsets, int64_t from, int64_t to, Body&& body) {
  const int32_t* const offsets_end = u_offsets.data + u_offsets.size;
  int64_t sentence = std::upper_bound(u_offsets.data, offsets_end, from) - u_offsets.data - 1;
  for (int64_t row = from; row < to; ++row) {
    while (u_offsets[sentence + 1] <= row) ++sentence;
    const int64_t first = x_offsets[sentence] + (row - u_offsets[sentence]) * kConvolutionStride - kMargin;
    body(row, first, std::max<int64_t>(0, x_offsets[sentence] - first),
         std::min<int64_t>(kConvolutionTaps, x_offsets[sentence + 1] - first));
  }
}

void CheckShapes(const ConstAnyMatrix& x, const ConstAnyMatrix& u, ConstTokens x_offsets, ConstTokens u_offsets,
                 int64_t first, const DeviceTaps& device_taps) {
  HADAL_CHECK_EQ(u.columns, kConvolutionTaps * x.columns);
  HADAL_CHECK_EQ(x_offsets.size, u_offsets.size);
  HADAL_CHECK_GE(x_offsets.size, 1);
  const int64_t x_rows = x_offsets[x_offsets.size - 1], u_rows = u_offsets[u_offsets.size - 1];
  HADAL_CHECK(x_rows == x.rows || (device_taps.taps != nullptr && x_rows < x.rows));
  HADAL_CHECK(device_taps.taps == nullptr || u_rows <= device_taps.rows);
  HADAL_CHECK_LE(first + u.rows, device_taps.taps == nullptr ? u_rows : device_taps.rows);
  for (int64_t n = 0; n + 1 < x_offsets.size; ++n) {
    HADAL_CHECK_EQ(u_offsets[n + 1] - u_offsets[n], UnfoldedRows(x_offsets[n + 1] - x_offsets[n]));
  }
}

}  // namespace

void Unfold(const Stream& stream, const UnfoldArgs& args) {
  CheckShapes(args.x, args.u, args.x_offsets, args.u_offsets, args.first, args.device_taps);
  if (stream.device() != nullptr) return stream.device()->kernels().unfold(stream, args);
  const ConstMatrix x_rows = args.x.floats();
  const Matrix u_rows = args.u.floats();
  stream.ForRanges(args.u.rows, 4, [&](int64_t from, int64_t to) {
    ForTaps(args.x_offsets, args.u_offsets, args.first + from, args.first + to,
            [&](int64_t row, int64_t first, int64_t begin, int64_t end) {
              float* const u = u_rows.row(row - args.first);
              for (int64_t k = 0; k < kConvolutionTaps; ++k) {
                const float* const x = k >= begin && k < end ? x_rows.row(first + k) : nullptr;
                for (int64_t c = 0; c < args.x.columns; ++c) u[kConvolutionTaps * c + k] = x == nullptr ? 0 : x[c];
              }
            });
  });
}

void Fold(const Stream& stream, const FoldArgs& args) {
  CheckShapes(args.dx, args.du, args.x_offsets, args.u_offsets, args.first, args.device_taps);
  if (stream.device() != nullptr) return stream.device()->kernels().fold(stream, args);
  const ConstMatrix du_rows = args.du.floats();
  stream.ForRanges(args.dx.columns, 16, [&](int64_t from, int64_t to) {
    ForTaps(args.x_offsets, args.u_offsets, args.first, args.first + args.du.rows,
            [&](int64_t row, int64_t first, int64_t begin, int64_t end) {
              const float* const du = du_rows.row(row - args.first);
              for (int64_t k = begin; k < end; ++k) {
                float* const dx = args.dx.row(first + k);
                for (int64_t c = from; c < to; ++c) dx[c] += du[kConvolutionTaps * c + k];
              }
            });
  });
}

}  // namespace hadal
