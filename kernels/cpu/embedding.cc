#include "kernels/cpu/operations.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/embedding.cc"
#include "hwy/foreach_target.h"
// Must be included after foreach_target.h.
#include "kernels/cpu/columns-inl.h"
#include "kernels/cpu/dropout-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {

void EmbeddingForwardRows(const EmbeddingForwardArgs& args, int64_t begin, int64_t end) {
  const int64_t width = args.x.columns;
  const float multiplier = args.multiplier;
  const bool positions_given = !args.row_positions.empty();
  const int32_t* offsets_end = args.offsets.data + args.offsets.size;
  // The sentence of row `begin`: the last that starts at or before it (empty sentences start there, too, but have no
  // row).
  const int32_t* sentence = positions_given ? nullptr : std::upper_bound(args.offsets.data, offsets_end, begin) - 1;
  DropoutWindow window(args.dropout, end * width);
  for (int64_t row = begin; row < end; ++row) {
    while (!positions_given && sentence[1] <= row) ++sentence;
    const float* token = args.table.floats().row(args.tokens[row]);
    const float* position = nullptr;
    if (!args.positions.empty()) {
      position = args.positions.row(positions_given ? args.row_positions[row] : row - *sentence);
    }
    float* x = args.x.floats().row(row);
    window.ForRow(row * width, 0, width, [&](auto d, int64_t c, const float* factors) HWY_ATTR {
      const auto place = position == nullptr ? hn::Zero(d) : hn::LoadU(d, position + c);
      auto value = hn::MulAdd(hn::Set(d, multiplier), hn::LoadU(d, token + c), place);
      if (factors != nullptr) value = hn::Mul(value, hn::LoadU(d, factors + c));
      hn::StoreU(value, d, x + c);
    });
  }
}

void EmbeddingBackwardColumns(const EmbeddingBackwardArgs& args, int64_t begin, int64_t end) {
  const int64_t width = args.dx.columns;
  const float multiplier = args.multiplier;
  float buffer[DropoutWindow::kCapacity + kDropoutSlack];
  const int32_t* sentence = args.offsets.data;
  for (int64_t row = 0; row < args.tokens.size; ++row) {
    float* d_position = nullptr;
    if (!args.d_positions.empty()) {
      while (sentence[1] <= row) ++sentence;
      d_position = args.d_positions.row(row - *sentence);
    }
    const float* dx = args.dx.floats().row(row);
    float* d_token = args.d_table.row(args.tokens[row]);
    for (int64_t first = begin; first < end; first += DropoutWindow::kCapacity) {
      const int64_t last = std::min(end, first + DropoutWindow::kCapacity);
      const float* factors = nullptr;
      if (args.dropout.active()) {
        factors = FillDropoutFactors(args.dropout, row * width + first, last - first, buffer) - first;
      }
      ForColumns(first, last, [&](auto d, int64_t c) HWY_ATTR {
        auto gradient = hn::LoadU(d, dx + c);
        if (factors != nullptr) gradient = hn::Mul(gradient, hn::LoadU(d, factors + c));
        hn::StoreU(hn::MulAdd(hn::Set(d, multiplier), gradient, hn::LoadU(d, d_token + c)), d, d_token + c);
        if (d_position != nullptr) hn::StoreU(hn::Add(gradient, hn::LoadU(d, d_position + c)), d, d_position + c);
      });
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace hadal {

HADAL_RANGE_OPERATION(EmbeddingForward, EmbeddingForwardRows, args.tokens.size, /*grain=*/16);
HADAL_RANGE_OPERATION(EmbeddingBackward, EmbeddingBackwardColumns, args.dx.columns, /*grain=*/16);

}  // namespace hadal

#endif  // HWY_ONCE
