#include "kernels/cpu/operations.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/head_scale.cc"
#include "hwy/foreach_target.h"
// Must be included after foreach_target.h.
#include "kernels/cpu/columns-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {

// to[h·D + j] = gain[h]·from[h·D + j] for one row. `to` may be `from`.
HWY_INLINE void ScaleRow(const float* from, const ConstVector& gain, int64_t head_width, float* to) {
  for (int64_t h = 0; h < gain.size; ++h) {
    ForColumns(h * head_width, (h + 1) * head_width, [&](auto d, int64_t c) HWY_ATTR {
      hn::StoreU(hn::Mul(hn::Set(d, gain[h]), hn::LoadU(d, from + c)), d, to + c);
    });
  }
}

void HeadScaleForwardRows(const HeadScaleForwardArgs& args, int64_t begin, int64_t end) {
  const int64_t head_width = args.x.columns / args.gain.size;
  for (int64_t row = begin; row < end; ++row)
    ScaleRow(args.x.floats().row(row), args.gain, head_width, args.y.floats().row(row));
}

void HeadScaleBackwardBlocks(const HeadScaleBackwardArgs& args, int64_t begin_block, int64_t end_block) {
  const int64_t heads = args.gain.size, head_width = args.dy.columns / heads;
  for (int64_t block = begin_block; block < end_block; ++block) {
    float* sums = args.partials.data + block * heads;
    std::fill_n(sums, heads, 0.0f);
    const int64_t end = std::min(args.dy.rows, (block + 1) * kHeadScaleRowBlock);
    for (int64_t row = block * kHeadScaleRowBlock; row < end; ++row) {
      const float *dy = args.dy.floats().row(row), *x = args.x.floats().row(row);
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t first = h * head_width;
        sums[h] += SumColumns(head_width, [&](auto d, int64_t c) HWY_ATTR {
          return hn::Mul(hn::LoadU(d, dy + first + c), hn::LoadU(d, x + first + c));
        });
      }
      ScaleRow(dy, args.gain, head_width, args.dx.floats().row(row));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace hadal {
namespace {
HWY_EXPORT(HeadScaleForwardRows);
HWY_EXPORT(HeadScaleBackwardBlocks);
}  // namespace

void cpu::HeadScaleForward(const Stream& stream, const HeadScaleForwardArgs& args) {
  stream.ForRanges(args.x.rows, kHeadScaleRowBlock, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(HeadScaleForwardRows)(args, begin, end);
  });
}

void cpu::HeadScaleBackward(const Stream& stream, const HeadScaleBackwardArgs& args) {
  const int64_t blocks = (args.dy.rows + kHeadScaleRowBlock - 1) / kHeadScaleRowBlock;
  stream.ForRanges(blocks, 1, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(HeadScaleBackwardBlocks)(args, begin, end);
  });
  for (int64_t block = 0; block < blocks; ++block) {
    for (int64_t h = 0; h < args.gain.size; ++h) args.d_gain[h] += args.partials[block * args.gain.size + h];
  }
}

}  // namespace hadal

#endif  // HWY_ONCE
