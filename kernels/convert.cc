#include "kernels/convert.h"

#include "kernels/device_kernels.h"
#include "runtime/check.h"

namespace hadal {
namespace {

float ToFloat(float x) { return x; }
float ToFloat(BFloat16 x) { return Widened(x); }
void Store(float x, float& to) { to = x; }
void Store(float x, BFloat16& to) { to = RoundedToBFloat16(x); }

template <typename From, typename To>
void ConvertRows(const Stream& stream, const MatrixOf<const From>& from, const MatrixOf<To>& to) {
  stream.ForRanges(to.rows, 16, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t c = 0; c < to.columns; ++c) Store(ToFloat(from.row(row)[c]), to.row(row)[c]);
    }
  });
}

template <typename From>
void ConvertFrom(const Stream& stream, const ConvertArgs& args) {
  if (args.to.storage == Storage::kFloat32) return ConvertRows(stream, args.from.of<From>(), args.to.of<float>());
  ConvertRows(stream, args.from.of<From>(), args.to.of<BFloat16>());
}

}  // namespace

void Convert(const Stream& stream, const ConvertArgs& args) {
  HADAL_CHECK_EQ(args.from.rows, args.to.rows);
  HADAL_CHECK_EQ(args.from.columns, args.to.columns);
  if (args.to.rows == 0) return;
  HADAL_CHECK_NE(args.from.data, args.to.data);
  if (stream.device() != nullptr) return stream.device()->kernels().convert(stream, args);
  if (args.from.storage == Storage::kFloat32) return ConvertFrom<float>(stream, args);
  ConvertFrom<BFloat16>(stream, args);
}

}  // namespace hadal
