#include "kernels/cpu/operations.h"

#include <algorithm>

#include "hwy/cache_control.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/hyper_connection.cc"
#include "hwy/foreach_target.h"
// Must be included after foreach_target.h.
#include "kernels/cpu/columns-inl.h"
#include "kernels/cpu/hyper_maps-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {

constexpr float kRmsEpsilon = 1e-6f;
constexpr int64_t kUsualResiduals = 4;  // loops over so many residuals are unrolled

template <int kResiduals>
void ReadForwardRows(const HyperReadForwardArgs& args, int64_t begin, int64_t end) {
  const int64_t width = args.u.columns, residuals = ResidualsOf<kResiduals>(args.x, width);
  HWY_ALIGN float maps[kMostMaps * kRowLanes], of_rows[kRowLanes * kMostMaps], rstd[kRowLanes] = {};
  for (int64_t first = begin; first < end; first += kRowLanes) {
    const int64_t last = std::min(first + kRowLanes, end);
    for (int64_t row = first; row < last; ++row) {
      const float* x = args.x.row(row);
      const float squares = SumColumns(args.x.columns, [&](auto d, int64_t c) HWY_ATTR {
        const auto v = hn::LoadU(d, x + c);
        return hn::Mul(v, v);
      });
      rstd[row - first] = args.rstd[row] = InverseRoot(squares / static_cast<float>(args.x.columns) + kRmsEpsilon);
    }
    RowsToLanes(args.projected, first, last, maps);
    Logits(args, /*begin=*/0, residuals, hn::Load(FloatTag(), rstd), maps, maps);
    MapsForward<kResiduals>(args.mixing, residuals, maps);
    LanesToRows(maps, last - first, args.maps.columns, of_rows);
    for (int64_t row = first; row < last; ++row) {
      const float *x = args.x.row(row), *pre = of_rows + (row - first) * kMostMaps;
      std::copy_n(pre, args.maps.columns, args.maps.row(row));
      float* u = args.u.row(row);
      ForColumns(0, width, [&](auto d, int64_t c) HWY_ATTR {
        auto sum = hn::Mul(hn::Set(d, pre[0]), hn::LoadU(d, x + c));
        for (int64_t i = 1; i < residuals; ++i) {
          sum = hn::MulAdd(hn::Set(d, pre[i]), hn::LoadU(d, x + i * width + c), sum);
        }
        hn::StoreU(sum, d, u + c);
      });
    }
  }
}

void HyperReadForwardRows(const HyperReadForwardArgs& args, int64_t begin, int64_t end) {
  if (args.x.columns == kUsualResiduals * args.u.columns) return ReadForwardRows<kUsualResiduals>(args, begin, end);
  ReadForwardRows<0>(args, begin, end);
}

template <int kResiduals>
void WriteForwardRows(const HyperWriteForwardArgs& args, int64_t begin, int64_t end) {
  constexpr int64_t kMost = kResiduals == 0 ? kMostResiduals : kResiduals;
  const int64_t width = args.f.columns, residuals = ResidualsOf<kResiduals>(args.x, width);
  float maps[HyperMaps(kMost)];  // a copy, which `y` cannot alias
  const float *post = maps + residuals, *res = post + residuals;
  for (int64_t row = begin; row < end; ++row) {
    const float *x = args.x.row(row), *f = args.f.row(row);
    float* y = args.y.row(row);
    std::copy_n(args.maps.row(row), HyperMaps(residuals), maps);
    ForColumns(0, width, [&](auto d, int64_t c) HWY_ATTR {
      hn::Vec<decltype(d)> from[kMost];
      for (int64_t j = 0; j < residuals; ++j) from[j] = hn::LoadU(d, x + j * width + c);
      const auto result = hn::LoadU(d, f + c);
      for (int64_t i = 0; i < residuals; ++i) {
        auto sum = hn::Mul(hn::Set(d, res[i * residuals]), from[0]);
        for (int64_t j = 1; j < residuals; ++j) sum = hn::MulAdd(hn::Set(d, res[i * residuals + j]), from[j], sum);
        hn::StoreU(hn::MulAdd(hn::Set(d, post[i]), result, sum), d, y + i * width + c);
      }
    });
  }
}

void HyperWriteForwardRows(const HyperWriteForwardArgs& args, int64_t begin, int64_t end) {
  if (args.x.columns == kUsualResiduals * args.f.columns) return WriteForwardRows<kUsualResiduals>(args, begin, end);
  WriteForwardRows<0>(args, begin, end);
}

// Dots reads all residuals of a row side by side, which the processor's own prefetches do not expect.
HWY_INLINE void PrefetchRow(const ConstMatrix& m, int64_t row) {
  constexpr int64_t kLine = 64 / sizeof(float);
  if (row >= m.rows) return;
  for (int64_t c = 0; c < m.columns; c += kLine) hwy::Prefetch(m.row(row) + c);
}

template <int kResiduals>
void WriteBackwardRows(const HyperWriteBackwardArgs& args, int64_t begin, int64_t end) {
  constexpr int64_t kMost = kResiduals == 0 ? kMostResiduals : kResiduals;
  const int64_t width = args.f.columns, residuals = ResidualsOf<kResiduals>(args.x, width);
  float maps[HyperMaps(kMost)];  // a copy, which `dx` and `df` cannot alias
  const float *post = maps + residuals, *res = post + residuals;
  for (int64_t row = begin; row < end; ++row) {
    const float *dy = args.dy.row(row), *x = args.x.row(row), *f = args.f.row(row);
    float *d_post = args.d_maps.row(row) + residuals, *d_res = d_post + residuals;
    float *dx = args.dx.row(row), *df = args.df.row(row);
    std::copy_n(args.maps.row(row), HyperMaps(residuals), maps);
    PrefetchRow(args.x, row + 1);
    PrefetchRow(args.dy, row + 1);
    constexpr int kTerms = kResiduals == 0 ? 1 : kResiduals + 1;
    for (int64_t i = 0; i < residuals; ++i) {
      for (int64_t j = 0; j <= residuals; j += kTerms) {  // with each residual, then with f
        float dots[kTerms];
        const auto of = [&](int64_t t) { return j + t < residuals ? x + (j + t) * width : f; };
        Dots(dy + i * width, of, width, dots);
        for (int64_t t = 0; t < kTerms; ++t) (j + t < residuals ? d_res[i * residuals + j + t] : d_post[i]) = dots[t];
      }
    }
    ForColumns(0, width, [&](auto d, int64_t c) HWY_ATTR {
      hn::Vec<decltype(d)> gradients[kMost];
      for (int64_t i = 0; i < residuals; ++i) gradients[i] = hn::LoadU(d, dy + i * width + c);
      for (int64_t j = 0; j <= residuals; ++j) {  // dx of each residual, then df
        const float* const factors = j < residuals ? res + j : post;
        const int64_t step = j < residuals ? residuals : 1;
        auto sum = hn::Mul(hn::Set(d, factors[0]), gradients[0]);
        for (int64_t i = 1; i < residuals; ++i) sum = hn::MulAdd(hn::Set(d, factors[i * step]), gradients[i], sum);
        hn::StoreU(sum, d, j < residuals ? dx + j * width + c : df + c);
      }
    });
  }
}

void HyperWriteBackwardRows(const HyperWriteBackwardArgs& args, int64_t begin, int64_t end) {
  if (args.x.columns == kUsualResiduals * args.f.columns) return WriteBackwardRows<kUsualResiduals>(args, begin, end);
  WriteBackwardRows<0>(args, begin, end);
}

// A block's rows. Adds the gradients of h to `sums` [l + 3]: those of the bias, then of the gates.
template <int kResiduals>
void ReadBackwardRows(const HyperReadBackwardArgs& args, int64_t begin, int64_t end, double* sums) {
  const int64_t width = args.du.columns, residuals = ResidualsOf<kResiduals>(args.x, width),
                count = args.projected.columns;
  RowGradients gradients;
  float gates[kMostMaps];           // of each element of h
  double of_gates[kMostMaps] = {};  // each element's part of its gate's gradient
  for (int64_t k = 0; k < count; ++k) gates[k] = args.gates[GateOf(k, residuals)];
  for (int64_t first = begin; first < end; first += kRowLanes) {
    const int64_t last = std::min(first + kRowLanes, end);
    MapsBackward<kResiduals>(args, first, last, gradients);
    for (int64_t row = first; row < last; ++row) {
      const float *du = args.du.row(row), *x = args.x.row(row), of_norm = gradients.of_norm[row - first];
      const float *dh = gradients.h + (row - first) * kMostMaps, *projected = args.projected.row(row);
      const float rstd = args.rstd[row];
      float *dx = args.dx.row(row), *d_projected = args.d_projected.row(row);
      for (int64_t k = 0; k < count; ++k) {
        sums[k] += dh[k];
        of_gates[k] += dh[k] * (rstd * projected[k]);
        d_projected[k] = gates[k] * rstd * dh[k];
      }
      for (int64_t i = 0; i < residuals; ++i) {
        const float map = args.maps.row(row)[i];
        ForColumns(0, width, [&](auto d, int64_t c) HWY_ATTR {
          const int64_t at = i * width + c;
          const auto read = hn::MulAdd(hn::Set(d, map), hn::LoadU(d, du + c), hn::LoadU(d, dx + at));
          hn::StoreU(hn::MulAdd(hn::Set(d, of_norm), hn::LoadU(d, x + at), read), d, dx + at);
        });
      }
    }
  }
  for (int64_t k = 0; k < count; ++k) sums[count + GateOf(k, residuals)] += of_gates[k];
}

// partials[block·(l + 3) + k].
void HyperReadBackwardBlocks(const HyperReadBackwardArgs& args, int64_t begin_block, int64_t end_block) {
  const int64_t rows = args.du.rows, count = args.projected.columns + kHyperGates;
  for (int64_t block = begin_block; block < end_block; ++block) {
    double sums[kMostMaps + kHyperGates] = {};
    const int64_t begin = block * kHyperRowBlock, end = std::min(rows, begin + kHyperRowBlock);
    if (args.x.columns == kUsualResiduals * args.du.columns) {
      ReadBackwardRows<kUsualResiduals>(args, begin, end, sums);
    } else {
      ReadBackwardRows<0>(args, begin, end, sums);
    }
    for (int64_t k = 0; k < count; ++k) args.partials[block * count + k] = static_cast<float>(sums[k]);
  }
}

void CopyToResidualsRows(const CopyToResidualsArgs& args, int64_t begin, int64_t end) {
  const int64_t width = args.x.columns;
  for (int64_t row = begin; row < end; ++row) {
    const float* x = args.x.row(row);
    ForColumns(0, width, [&](auto d, int64_t c) HWY_ATTR {
      const auto value = hn::Mul(hn::Set(d, args.gain), hn::LoadU(d, x + c));
      for (float* y = args.y.row(row) + c; y < args.y.row(row) + args.y.columns; y += width) hn::StoreU(value, d, y);
    });
  }
}

// Residuals i and i + half are added, so that equal residuals have an exact sum if their number is a power of two.
void SumResidualsRows(const SumResidualsArgs& args, int64_t begin, int64_t end) {
  const int64_t width = args.y.columns, residuals = args.x.columns / width;
  for (int64_t row = begin; row < end; ++row) {
    const float* x = args.x.row(row);
    float* y = args.y.row(row);
    ForColumns(0, width, [&](auto d, int64_t c) HWY_ATTR {
      hn::Vec<decltype(d)> sums[kMostResiduals];
      for (int64_t i = 0; i < residuals; ++i) sums[i] = hn::LoadU(d, x + i * width + c);
      for (int64_t left = residuals; left > 1;) {
        const int64_t half = (left + 1) / 2;
        for (int64_t i = half; i < left; ++i) sums[i - half] = hn::Add(sums[i - half], sums[i]);
        left = half;
      }
      hn::StoreU(hn::Mul(hn::Set(d, args.gain), sums[0]), d, y + c);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace hadal {
namespace {
HWY_EXPORT(HyperReadForwardRows);
HWY_EXPORT(HyperWriteForwardRows);
HWY_EXPORT(HyperWriteBackwardRows);
HWY_EXPORT(HyperReadBackwardBlocks);
HWY_EXPORT(CopyToResidualsRows);
HWY_EXPORT(SumResidualsRows);
}  // namespace

void cpu::HyperReadForward(const Stream& stream, const HyperReadForwardArgs& args) {
  ForRanges(stream, args.u.rows, /*grain=*/16, HWY_DYNAMIC_DISPATCH(HyperReadForwardRows), args);
}

void cpu::HyperWriteForward(const Stream& stream, const HyperWriteForwardArgs& args) {
  ForRanges(stream, args.f.rows, 1, HWY_DYNAMIC_DISPATCH(HyperWriteForwardRows), args);
}

void cpu::HyperWriteBackward(const Stream& stream, const HyperWriteBackwardArgs& args) {
  ForRanges(stream, args.f.rows, 1, HWY_DYNAMIC_DISPATCH(HyperWriteBackwardRows), args);
}

void cpu::HyperReadBackward(const Stream& stream, const HyperReadBackwardArgs& args) {
  const int64_t logits = args.projected.columns, count = logits + kHyperGates;
  const int64_t blocks = (args.du.rows + kHyperRowBlock - 1) / kHyperRowBlock;
  ForRanges(stream, blocks, 1, HWY_DYNAMIC_DISPATCH(HyperReadBackwardBlocks), args);
  for (int64_t k = 0; k < count; ++k) {
    double sum = 0;
    for (int64_t block = 0; block < blocks; ++block) sum += args.partials[block * count + k];
    (k < logits ? args.d_bias[k] : args.d_gates[k - logits]) += static_cast<float>(sum);
  }
}

void cpu::CopyToResiduals(const Stream& stream, const CopyToResidualsArgs& args) {
  ForRanges(stream, args.x.rows, 1, HWY_DYNAMIC_DISPATCH(CopyToResidualsRows), args);
}

void cpu::SumResiduals(const Stream& stream, const SumResidualsArgs& args) {
  ForRanges(stream, args.y.rows, 1, HWY_DYNAMIC_DISPATCH(SumResidualsRows), args);
}

}  // namespace hadal

#endif  // HWY_ONCE
