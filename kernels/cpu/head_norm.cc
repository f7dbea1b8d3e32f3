#include <algorithm>

#include "kernels/cpu/operations.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/head_norm.cc"
#include "hwy/foreach_target.h"
// Must be included after foreach_target.h.
#include "kernels/cpu/columns-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {

struct HeadStatistics {
  float mean, rstd;
};

HWY_INLINE HeadStatistics StatisticsOfHead(const NormForm& form, const float* x, int64_t width) {
  float mean = 0;
  if (form.centred) {
    mean = SumColumns(width, [&](auto d, int64_t c) HWY_ATTR { return hn::LoadU(d, x + c); }) / width;
  }
  const float squares = SumColumns(width, [&](auto d, int64_t c) HWY_ATTR {
    const auto centred = hn::Sub(hn::LoadU(d, x + c), hn::Set(d, mean));
    return hn::Mul(centred, centred);
  });
  return {mean, InverseRoot(squares / width + form.epsilon)};
}

template <class D>
HWY_INLINE hn::Vec<D> Normalised(D d, const HeadStatistics& of, const float* x) {
  return hn::Mul(hn::Sub(hn::LoadU(d, x), hn::Set(d, of.mean)), hn::Set(d, of.rstd));
}

void HeadNormForwardRows(const HeadNormForwardArgs& args, int64_t begin, int64_t end) {
  const int64_t width = args.scale.size;
  const float *scale = args.scale.data, *shift = args.shift.data;
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t first = 0; first < args.x.columns; first += width) {
      const float* x = args.x.floats().row(row) + first;
      float* y = args.y.floats().row(row) + first;
      const HeadStatistics statistics = StatisticsOfHead(args.form, x, width);
      ForColumns(0, width, [&](auto d, int64_t c) HWY_ATTR {
        const auto added = shift == nullptr ? hn::Zero(d) : hn::LoadU(d, shift + c);
        hn::StoreU(hn::MulAdd(Normalised(d, statistics, x + c), hn::LoadU(d, scale + c), added), d, y + c);
      });
    }
  }
}

// dx = rstd·(g − mean(g) − n·mean(g ⊙ n)), n = (x − mean)·rstd, g = scale ⊙ dy; RMSNorm: without mean(g). `sums`: of
// dy ⊙ n and of dy, [2, D].
HWY_INLINE void HeadBackward(const HeadNormBackwardArgs& args, const float* dy, const float* x, float* dx,
                             float* sums) {
  const int64_t width = args.scale.size;
  const float* scale = args.scale.data;
  const HeadStatistics statistics = StatisticsOfHead(args.form, x, width);
  float means[2];  // of g, of g ⊙ n
  SumColumnTerms<2, 2>(width, means, [&](auto d, int64_t c, auto& terms) HWY_ATTR {
    terms[0] = hn::Mul(hn::LoadU(d, dy + c), hn::LoadU(d, scale + c));
    terms[1] = hn::Mul(terms[0], Normalised(d, statistics, x + c));
  });
  const float mean = args.form.centred ? means[0] / width : 0.0f, product = means[1] / width;
  ForColumns(0, width, [&](auto d, int64_t c) HWY_ATTR {
    const auto gradient = hn::LoadU(d, dy + c), normalised = Normalised(d, statistics, x + c);
    hn::StoreU(hn::MulAdd(gradient, normalised, hn::LoadU(d, sums + c)), d, sums + c);
    hn::StoreU(hn::Add(gradient, hn::LoadU(d, sums + width + c)), d, sums + width + c);
    const auto centred = hn::Sub(hn::Mul(gradient, hn::LoadU(d, scale + c)), hn::Set(d, mean));
    const auto rest = hn::NegMulAdd(normalised, hn::Set(d, product), centred);
    hn::StoreU(hn::Mul(rest, hn::Set(d, statistics.rstd)), d, dx + c);
  });
}

void HeadNormBackwardBlocks(const HeadNormBackwardArgs& args, int64_t begin_block, int64_t end_block) {
  const int64_t width = args.scale.size;
  for (int64_t block = begin_block; block < end_block; ++block) {
    float* sums = args.partials.data + block * 2 * width;
    std::fill_n(sums, 2 * width, 0.0f);
    const int64_t end = std::min(args.dy.rows, (block + 1) * kHeadNormRowBlock);
    for (int64_t row = block * kHeadNormRowBlock; row < end; ++row) {
      for (int64_t first = 0; first < args.dy.columns; first += width) {
        HeadBackward(args, args.dy.floats().row(row) + first, args.x.floats().row(row) + first,
                     args.dx.floats().row(row) + first, sums);
      }
    }
  }
}

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

HWY_EXPORT(HeadNormBackwardBlocks);
HWY_EXPORT(HeadScaleBackwardBlocks);
HADAL_RANGE_OPERATION(HeadNormForward, HeadNormForwardRows, args.x.rows, kHeadNormRowBlock);
HADAL_RANGE_OPERATION(HeadScaleForward, HeadScaleForwardRows, args.x.rows, kHeadScaleRowBlock);

void cpu::HeadNormBackward(const Stream& stream, const HeadNormBackwardArgs& args) {
  const int64_t blocks = (args.dy.rows + kHeadNormRowBlock - 1) / kHeadNormRowBlock, width = args.scale.size;
  ForRanges(stream, blocks, 1, HWY_DYNAMIC_DISPATCH(HeadNormBackwardBlocks), args);
  for (int64_t block = 0; block < blocks; ++block) {
    const float* sums = args.partials.data + block * 2 * width;
    for (int64_t c = 0; c < width; ++c) args.d_scale[c] += sums[c];
    for (int64_t c = 0; c < args.d_shift.size; ++c) args.d_shift[c] += sums[width + c];
  }
}

void cpu::HeadScaleBackward(const Stream& stream, const HeadScaleBackwardArgs& args) {
  const int64_t blocks = (args.dy.rows + kHeadScaleRowBlock - 1) / kHeadScaleRowBlock;
  ForRanges(stream, blocks, 1, HWY_DYNAMIC_DISPATCH(HeadScaleBackwardBlocks), args);
  for (int64_t block = 0; block < blocks; ++block) {
    for (int64_t h = 0; h < args.gain.size; ++h) args.d_gain[h] += args.partials[block * args.gain.size + h];
  }
}

}  // namespace hadal

#endif  // HWY_ONCE
