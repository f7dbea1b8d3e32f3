#include "kernels/cpu/operations.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/shift_scale.cc"
#include "hwy/foreach_target.h"
// Must be included after foreach_target.h.
#include "kernels/cpu/columns-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {

void ShiftScaleForwardRows(const ShiftScaleForwardArgs& args, int64_t begin, int64_t end) {
  const float shift = args.shift[0], scale = args.scale.empty() ? 1.0f : args.scale[0];
  for (int64_t row = begin; row < end; ++row) {
    const float* x = args.x.floats().row(row);
    float* y = args.y.floats().row(row);
    ForColumns(0, args.x.columns, [&](auto d, int64_t c) HWY_ATTR {
      hn::StoreU(hn::Mul(hn::Set(d, scale), hn::Sub(hn::LoadU(d, x + c), hn::Set(d, shift))), d, y + c);
    });
  }
}

// partials[2·block]: Σ dy, [2·block + 1]: Σ dy·(x − b), of the block.
void ShiftScaleBackwardBlocks(const ShiftScaleBackwardArgs& args, int64_t begin_block, int64_t end_block) {
  const bool scaled = !args.scale.empty();
  const float shift = args.shift[0], scale = scaled ? args.scale[0] : 1.0f;
  const int64_t width = args.dy.columns;
  for (int64_t block = begin_block; block < end_block; ++block) {
    double sum = 0, product = 0;
    const int64_t end = std::min(args.dy.rows, (block + 1) * kShiftScaleRowBlock);
    for (int64_t row = block * kShiftScaleRowBlock; row < end; ++row) {
      const float* dy = args.dy.floats().row(row);
      const float* x = scaled ? args.x.floats().row(row) : nullptr;
      float* dx = args.dx.floats().row(row);
      sum += SumColumns(width, [&](auto d, int64_t c) HWY_ATTR { return hn::LoadU(d, dy + c); });
      if (scaled) {
        product += SumColumns(width, [&](auto d, int64_t c) HWY_ATTR {
          return hn::Mul(hn::LoadU(d, dy + c), hn::Sub(hn::LoadU(d, x + c), hn::Set(d, shift)));
        });
      }
      ForColumns(0, width, [&](auto d, int64_t c) HWY_ATTR {
        auto gradient = hn::Mul(hn::Set(d, scale), hn::LoadU(d, dy + c));
        if (args.accumulate) gradient = hn::Add(hn::LoadU(d, dx + c), gradient);
        hn::StoreU(gradient, d, dx + c);
      });
    }
    args.partials[2 * block] = static_cast<float>(sum);
    args.partials[2 * block + 1] = static_cast<float>(product);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace hadal {

HWY_EXPORT(ShiftScaleBackwardBlocks);
HADAL_RANGE_OPERATION(ShiftScaleForward, ShiftScaleForwardRows, args.x.rows, kShiftScaleRowBlock);

void cpu::ShiftScaleBackward(const Stream& stream, const ShiftScaleBackwardArgs& args) {
  const int64_t blocks = ShiftScalePartials(args.dy.rows) / 2;
  ForRanges(stream, blocks, 1, HWY_DYNAMIC_DISPATCH(ShiftScaleBackwardBlocks), args);
  double sum = 0, product = 0;
  for (int64_t block = 0; block < blocks; ++block) {
    sum += args.partials[2 * block];
    product += args.partials[2 * block + 1];
  }
  if (args.scale.empty()) {
    args.d_shift[0] -= static_cast<float>(sum);
    return;
  }
  args.d_shift[0] -= static_cast<float>(args.scale[0] * sum);
  args.d_scale[0] += static_cast<float>(product);
}

}  // namespace hadal

#endif  // HWY_ONCE
