#include "kernels/cpu/hyper_connection.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/sinkhorn.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/hyper_connection.cc"
#include "hwy/foreach_target.h"
// Must be included after foreach_target.h.
#include "kernels/cpu/columns-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {

constexpr float kRmsEpsilon = 1e-6f;
constexpr int64_t kMostMaps = HyperMaps(kMostStreams);

// Which gate multiplies element k of the maps.
HWY_INLINE int64_t GateOf(int64_t k, int64_t streams) { return k < streams ? 0 : k < 2 * streams ? 1 : 2; }

// h of one row.
template <typename Args>
HWY_INLINE void Logits(const Args& args, int64_t row, int64_t streams, float rstd, float* h) {
  const float* projected = args.projected.row(row);
  for (int64_t k = 0; k < HyperMaps(streams); ++k) {
    h[k] = args.gates[GateOf(k, streams)] * (rstd * projected[k]) + args.bias[k];
  }
}

void HyperReadForwardRows(const HyperReadForwardArgs& args, int64_t begin, int64_t end) {
  const int64_t width = args.u.columns, streams = args.x.columns / width;
  float h[kMostMaps];
  for (int64_t row = begin; row < end; ++row) {
    const float* x = args.x.row(row);
    float *maps = args.maps.row(row), *u = args.u.row(row);
    const float squares = SumColumns(args.x.columns, [&](auto d, int64_t c) HWY_ATTR {
      const auto v = hn::LoadU(d, x + c);
      return hn::Mul(v, v);
    });
    const float rstd = args.rstd[row] = 1.0f / std::sqrt(squares / static_cast<float>(args.x.columns) + kRmsEpsilon);
    Logits(args, row, streams, rstd, h);
    for (int64_t k = 0; k < 2 * streams; ++k) {
      const float sigmoid = 1.0f / (1.0f + std::exp(-h[k]));
      maps[k] = k < streams ? sigmoid : 2 * sigmoid;
    }
    cpu::SinkhornForward(streams, h + 2 * streams, maps + 2 * streams);
    ForColumns(0, width, [&](auto d, int64_t c) HWY_ATTR {
      auto sum = hn::Mul(hn::Set(d, maps[0]), hn::LoadU(d, x + c));
      for (int64_t i = 1; i < streams; ++i) sum = hn::MulAdd(hn::Set(d, maps[i]), hn::LoadU(d, x + i * width + c), sum);
      hn::StoreU(sum, d, u + c);
    });
  }
}

void HyperWriteForwardRows(const HyperWriteForwardArgs& args, int64_t begin, int64_t end) {
  const int64_t width = args.f.columns, streams = args.x.columns / width;
  for (int64_t row = begin; row < end; ++row) {
    const float *x = args.x.row(row), *f = args.f.row(row), *post = args.maps.row(row) + streams;
    for (int64_t i = 0; i < streams; ++i) {
      const float* res = post + streams + i * streams;
      float* y = args.y.row(row) + i * width;
      ForColumns(0, width, [&](auto d, int64_t c) HWY_ATTR {
        auto sum = hn::Mul(hn::Set(d, res[0]), hn::LoadU(d, x + c));
        for (int64_t j = 1; j < streams; ++j)
          sum = hn::MulAdd(hn::Set(d, res[j]), hn::LoadU(d, x + j * width + c), sum);
        hn::StoreU(hn::MulAdd(hn::Set(d, post[i]), hn::LoadU(d, f + c), sum), d, y + c);
      });
    }
  }
}

HWY_INLINE float DotColumns(const float* a, const float* b, int64_t width) {
  return SumColumns(width,
                    [&](auto d, int64_t c) HWY_ATTR { return hn::Mul(hn::LoadU(d, a + c), hn::LoadU(d, b + c)); });
}

void HyperWriteBackwardRows(const HyperWriteBackwardArgs& args, int64_t begin, int64_t end) {
  const int64_t width = args.f.columns, streams = args.x.columns / width;
  for (int64_t row = begin; row < end; ++row) {
    const float *dy = args.dy.row(row), *x = args.x.row(row), *f = args.f.row(row);
    const float *post = args.maps.row(row) + streams, *res = post + streams;
    float *d_post = args.d_maps.row(row) + streams, *d_res = d_post + streams;
    float *dx = args.dx.row(row), *df = args.df.row(row);
    for (int64_t i = 0; i < streams; ++i) {
      d_post[i] = DotColumns(dy + i * width, f, width);
      for (int64_t j = 0; j < streams; ++j) {
        d_res[i * streams + j] = DotColumns(dy + i * width, x + j * width, width);
      }
    }
    ForColumns(0, width, [&](auto d, int64_t c) HWY_ATTR {
      hn::Vec<decltype(d)> sums[kMostStreams + 1];  // dx of each stream, then df
      for (int64_t i = 0; i < streams; ++i) {
        const auto gradient = hn::LoadU(d, dy + i * width + c);
        for (int64_t j = 0; j <= streams; ++j) {
          const auto factor = hn::Set(d, j < streams ? res[i * streams + j] : post[i]);
          sums[j] = i == 0 ? hn::Mul(factor, gradient) : hn::MulAdd(factor, gradient, sums[j]);
        }
      }
      for (int64_t j = 0; j < streams; ++j) hn::StoreU(sums[j], d, dx + j * width + c);
      hn::StoreU(sums[streams], d, df + c);
    });
  }
}

// Adds the gradients of h to `sums` [m + 3]: those of the bias, then of the gates.
HWY_INLINE void ReadBackwardRow(const HyperReadBackwardArgs& args, int64_t row, double* sums) {
  const int64_t width = args.du.columns, streams = args.x.columns / width, count = HyperMaps(streams);
  const float *du = args.du.row(row), *x = args.x.row(row), *maps = args.maps.row(row);
  const float *projected = args.projected.row(row), rstd = args.rstd[row];
  float *d_maps = args.d_maps.row(row), *dx = args.dx.row(row);
  float h[kMostMaps], dh[kMostMaps];
  Logits(args, row, streams, rstd, h);
  for (int64_t i = 0; i < streams; ++i) {
    dh[i] = DotColumns(du, x + i * width, width) * maps[i] * (1 - maps[i]);
    const float post = maps[streams + i];
    dh[streams + i] = d_maps[streams + i] * post * (1 - 0.5f * post);
  }
  cpu::SinkhornBackward(streams, h + 2 * streams, d_maps + 2 * streams, dh + 2 * streams);
  float d_rstd = 0;
  for (int64_t k = 0; k < count; ++k) {
    const int64_t gate = GateOf(k, streams);
    sums[k] += dh[k];
    sums[count + gate] += dh[k] * (rstd * projected[k]);
    d_rstd += args.gates[gate] * projected[k] * dh[k];
    d_maps[k] = args.gates[gate] * rstd * dh[k];
  }
  const float of_norm = -d_rstd * rstd * rstd * rstd / static_cast<float>(args.x.columns);
  for (int64_t i = 0; i < streams; ++i) {
    ForColumns(0, width, [&](auto d, int64_t c) HWY_ATTR {
      const int64_t at = i * width + c;
      const auto read = hn::MulAdd(hn::Set(d, maps[i]), hn::LoadU(d, du + c), hn::LoadU(d, dx + at));
      hn::StoreU(hn::MulAdd(hn::Set(d, of_norm), hn::LoadU(d, x + at), read), d, dx + at);
    });
  }
}

// partials[block·(m + 3) + k].
void HyperReadBackwardBlocks(const HyperReadBackwardArgs& args, int64_t begin_block, int64_t end_block) {
  const int64_t rows = args.du.rows, count = args.d_maps.columns + kHyperGates;
  for (int64_t block = begin_block; block < end_block; ++block) {
    double sums[kMostMaps + kHyperGates] = {};
    const int64_t end = std::min(rows, (block + 1) * kHyperRowBlock);
    for (int64_t row = block * kHyperRowBlock; row < end; ++row) ReadBackwardRow(args, row, sums);
    for (int64_t k = 0; k < count; ++k) args.partials[block * count + k] = static_cast<float>(sums[k]);
  }
}

void CopyToStreamsRows(const CopyToStreamsArgs& args, int64_t begin, int64_t end) {
  const int64_t width = args.x.columns;
  for (int64_t row = begin; row < end; ++row) {
    const float* x = args.x.row(row);
    ForColumns(0, width, [&](auto d, int64_t c) HWY_ATTR {
      const auto value = hn::Mul(hn::Set(d, args.gain), hn::LoadU(d, x + c));
      for (float* y = args.y.row(row) + c; y < args.y.row(row) + args.y.columns; y += width) hn::StoreU(value, d, y);
    });
  }
}

// Streams i and i + half are added, so that equal streams have an exact sum if their number is a power of two.
void SumStreamsRows(const SumStreamsArgs& args, int64_t begin, int64_t end) {
  const int64_t width = args.y.columns, streams = args.x.columns / width;
  for (int64_t row = begin; row < end; ++row) {
    const float* x = args.x.row(row);
    float* y = args.y.row(row);
    ForColumns(0, width, [&](auto d, int64_t c) HWY_ATTR {
      hn::Vec<decltype(d)> sums[kMostStreams];
      for (int64_t i = 0; i < streams; ++i) sums[i] = hn::LoadU(d, x + i * width + c);
      for (int64_t left = streams; left > 1;) {
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
HWY_EXPORT(CopyToStreamsRows);
HWY_EXPORT(SumStreamsRows);
}  // namespace

void cpu::HyperReadForward(const Stream& stream, const HyperReadForwardArgs& args) {
  stream.ForRanges(args.u.rows, 1, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(HyperReadForwardRows)(args, begin, end);
  });
}

void cpu::HyperWriteForward(const Stream& stream, const HyperWriteForwardArgs& args) {
  stream.ForRanges(args.f.rows, 1, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(HyperWriteForwardRows)(args, begin, end);
  });
}

void cpu::HyperWriteBackward(const Stream& stream, const HyperWriteBackwardArgs& args) {
  stream.ForRanges(args.f.rows, 1, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(HyperWriteBackwardRows)(args, begin, end);
  });
}

void cpu::HyperReadBackward(const Stream& stream, const HyperReadBackwardArgs& args) {
  const int64_t maps = args.d_maps.columns, count = maps + kHyperGates;
  const int64_t blocks = (args.du.rows + kHyperRowBlock - 1) / kHyperRowBlock;
  stream.ForRanges(blocks, 1, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(HyperReadBackwardBlocks)(args, begin, end);
  });
  for (int64_t k = 0; k < count; ++k) {
    double sum = 0;
    for (int64_t block = 0; block < blocks; ++block) sum += args.partials[block * count + k];
    (k < maps ? args.d_bias[k] : args.d_gates[k - maps]) += static_cast<float>(sum);
  }
}

void cpu::CopyToStreams(const Stream& stream, const CopyToStreamsArgs& args) {
  stream.ForRanges(args.x.rows, 1, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(CopyToStreamsRows)(args, begin, end);
  });
}

void cpu::SumStreams(const Stream& stream, const SumStreamsArgs& args) {
  stream.ForRanges(args.y.rows, 1, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(SumStreamsRows)(args, begin, end);
  });
}

}  // namespace hadal

#endif  // HWY_ONCE
