#include "kernels/cpu/operations.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_residual.cc"
#include "hwy/foreach_target.h"
// Must be included after foreach_target.h.
#include "kernels/cpu/columns-inl.h"
#include "kernels/cpu/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {

HWY_INLINE float ScalarExp(float x) { return hn::GetLane(Exp(OneFloatTag(), hn::Set(OneFloatTag(), x))); }

HWY_INLINE float Dot(const float* a, const float* b, int64_t width) {
  return SumColumns(width,
                    [&](auto d, int64_t c) HWY_ATTR { return hn::Mul(hn::LoadU(d, a + c), hn::LoadU(d, b + c)); });
}

HWY_INLINE float InverseRms(const float* v, int64_t width, float epsilon) {
  return InverseRoot(Dot(v, v, width) / static_cast<float>(width) + epsilon);
}

// (w ⊙ g)·v.
HWY_INLINE float QueryDot(const SourceReader& reader, const float* v, int64_t width) {
  const float *w = reader.query.data, *g = reader.scale.data;
  return SumColumns(width, [&](auto d, int64_t c) HWY_ATTR {
    return hn::Mul(hn::Mul(hn::LoadU(d, w + c), hn::LoadU(d, g + c)), hn::LoadU(d, v + c));
  });
}

// The largest logit of a row and Σ e^(l − largest).
HWY_INLINE void SumOfLogits(const float* logits, int64_t sources, float* statistics) {
  float largest = logits[0], sum = 0;
  for (int64_t j = 1; j < sources; ++j) largest = std::max(largest, logits[j]);
  for (int64_t j = 0; j < sources; ++j) sum += ScalarExp(logits[j] - largest);
  statistics[kSourcesLargest] = largest;
  statistics[kSourcesSum] = sum;
}

// β_j.
HWY_INLINE float SourceWeight(const float* logits, const float* statistics, int64_t j) {
  return ScalarExp(logits[j] - statistics[kSourcesLargest]) / statistics[kSourcesSum];
}

void ReadSourcesForwardRows(const ReadSourcesForwardArgs& args, int64_t begin, int64_t end) {
  const int64_t width = args.y.columns, readers = std::ssize(args.readers), rows = args.y.rows / readers,
                sources = args.x.rows / rows;
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t j = 0; j < sources; ++j) {
      const float* v = args.x.row(j * rows + row);
      const float inverse_rms = args.inverse_rms[j * rows + row] = InverseRms(v, width, args.epsilon);
      for (int64_t q = 0; q < readers; ++q) {
        const SourceReader& reader = args.readers[q];
        if (reader.query.empty()) continue;
        args.logits.row(q * rows + row)[j] = QueryDot(reader, v, width) * inverse_rms;
      }
    }
    for (int64_t q = 0; q < readers; ++q) {
      const int64_t at = q * rows + row;
      const bool attends = !args.readers[q].query.empty(), adds = args.adds || !attends;
      float *y = args.y.row(at), *statistics = args.statistics.row(at);
      const float* logits = args.logits.row(at);
      std::fill_n(statistics, int64_t{kReaderStatistics}, 0.0f);
      if (attends) SumOfLogits(logits, sources, statistics);
      for (int64_t j = 0; j < sources; ++j) {
        const float weight = (adds ? 1.0f : 0.0f) + (attends ? SourceWeight(logits, statistics, j) : 0.0f);
        const float* v = args.x.row(j * rows + row);
        ForColumns(0, width, [&](auto d, int64_t c) HWY_ATTR {
          const auto factor = hn::Set(d, weight), value = hn::LoadU(d, v + c);
          hn::StoreU(j == 0 ? hn::Mul(factor, value) : hn::MulAdd(factor, value, hn::LoadU(d, y + c)), d, y + c);
        });
      }
    }
  }
}

void ReadOpenForwardRows(const ReadOpenForwardArgs& args, int64_t begin, int64_t end) {
  const int64_t width = args.y.columns;
  const bool adds = args.adds || args.reader.query.empty();
  for (int64_t row = begin; row < end; ++row) {
    const float* p = args.open.row(row);
    float *y = args.y.row(row), *statistics = args.statistics.row(row), of_sources = 1, of_open = 1;
    if (!adds) {
      const float inverse_rms = statistics[kOpenInverseRms] = InverseRms(p, width, args.epsilon);
      const float logit = statistics[kOpenLogit] = QueryDot(args.reader, p, width) * inverse_rms;
      const float largest = std::max(statistics[kSourcesLargest], logit);
      const float sources = statistics[kSourcesSum] * ScalarExp(statistics[kSourcesLargest] - largest);
      const float open = ScalarExp(logit - largest);
      of_sources = sources / (sources + open);
      of_open = statistics[kOpenWeight] = open / (sources + open);
    }
    ForColumns(0, width, [&](auto d, int64_t c) HWY_ATTR {
      const auto read = hn::Mul(hn::Set(d, of_sources), hn::LoadU(d, y + c));
      hn::StoreU(hn::MulAdd(hn::Set(d, of_open), hn::LoadU(d, p + c), read), d, y + c);
    });
  }
}

// A logit's gradient as factors of three tensors: of w ⊙ g in dV, of V in dV, and of V in the gradient of w ⊙ g.
struct LogitFactors {
  float of_query, of_value;
};
HWY_INLINE LogitFactors FactorsOf(float gradient, float logit, float inverse_rms, int64_t width) {
  return {gradient * inverse_rms, -gradient * logit * inverse_rms * inverse_rms / static_cast<float>(width)};
}

// partials[block]: Σ_rows of the gradient of w ⊙ g.
void ReadOpenBackwardBlocks(const ReadOpenBackwardArgs& args, int64_t begin_block, int64_t end_block) {
  const int64_t width = args.dh.columns;
  const bool adds = args.adds || args.reader.query.empty();
  const float *w = args.reader.query.data, *g = args.reader.scale.data;
  for (int64_t block = begin_block; block < end_block; ++block) {
    float* sums = args.partials.data + block * width;
    if (!adds) std::fill_n(sums, width, 0.0f);
    const int64_t last = std::min(args.dh.rows, (block + 1) * kReaderRowBlock);
    for (int64_t row = block * kReaderRowBlock; row < last; ++row) {
      const float *dh = args.dh.row(row), *p = args.open.row(row);
      float *h = args.h.row(row), *dp = args.d_open.row(row), *statistics = args.statistics.row(row);
      if (adds) {
        ForColumns(0, width, [&](auto d, int64_t c) HWY_ATTR {
          const auto gradient = hn::LoadU(d, dh + c);
          hn::StoreU(hn::Add(hn::LoadU(d, dp + c), gradient), d, dp + c);
          hn::StoreU(gradient, d, h + c);
        });
        continue;
      }
      const float weight = statistics[kOpenWeight];
      const float gradient = weight * (Dot(dh, p, width) - Dot(dh, h, width));
      statistics[kOpenLogitGradient] = gradient;
      const LogitFactors f = FactorsOf(gradient, statistics[kOpenLogit], statistics[kOpenInverseRms], width);
      ForColumns(0, width, [&](auto d, int64_t c) HWY_ATTR {
        const auto dy = hn::LoadU(d, dh + c), value = hn::LoadU(d, p + c);
        const auto query = hn::Mul(hn::LoadU(d, w + c), hn::LoadU(d, g + c));
        auto sum = hn::MulAdd(hn::Set(d, weight), dy, hn::LoadU(d, dp + c));
        sum = hn::MulAdd(hn::Set(d, f.of_query), query, sum);
        hn::StoreU(hn::MulAdd(hn::Set(d, f.of_value), value, sum), d, dp + c);
        hn::StoreU(hn::MulAdd(hn::Set(d, f.of_query), value, hn::LoadU(d, sums + c)), d, sums + c);
        hn::StoreU(dy, d, h + c);
      });
    }
  }
}

// The gradients of a row's logits of reader q, in d_logits.
HWY_INLINE void LogitGradients(const ReadSourcesBackwardArgs& args, int64_t row, int64_t q) {
  const int64_t width = args.dh.columns, rows = args.dh.rows / std::ssize(args.readers), at = q * rows + row;
  const int64_t sources = args.logits.columns;
  const float *dh = args.dh.row(at), *logits = args.logits.row(at), *statistics = args.statistics.row(at);
  float* gradients = args.d_logits.row(at);
  const float of_sources = 1.0f - statistics[kOpenWeight];
  float mean = 0;
  for (int64_t j = 0; j < sources; ++j) {
    gradients[j] = of_sources * Dot(dh, args.x.row(j * rows + row), width);
    mean += SourceWeight(logits, statistics, j) * gradients[j];
  }
  mean += statistics[kOpenLogitGradient];
  for (int64_t j = 0; j < sources; ++j) gradients[j] = SourceWeight(logits, statistics, j) * (gradients[j] - mean);
}

// dx of source j in a row, and what the row adds to `sums` [Q, d]: readers in descending order.
HWY_INLINE void SourceGradient(const ReadSourcesBackwardArgs& args, int64_t row, int64_t j, float* sums) {
  const int64_t width = args.dh.columns, readers = std::ssize(args.readers), rows = args.dh.rows / readers;
  const float *v = args.x.row(j * rows + row), inverse_rms = args.inverse_rms[j * rows + row];
  float* dx = args.dx.row(j * rows + row);
  for (int64_t q = readers; q-- > 0;) {
    const int64_t at = q * rows + row;
    const SourceReader& reader = args.readers[q];
    const float *dh = args.dh.row(at), *w = reader.query.data, *g = reader.scale.data;
    if (reader.query.empty()) {
      ForColumns(0, width, [&](auto d, int64_t c) HWY_ATTR {
        hn::StoreU(hn::Add(hn::LoadU(d, dx + c), hn::LoadU(d, dh + c)), d, dx + c);
      });
      continue;
    }
    const float *logits = args.logits.row(at), *statistics = args.statistics.row(at);
    const float share = (1.0f - statistics[kOpenWeight]) * SourceWeight(logits, statistics, j);
    const float weight = args.adds ? 1.0f + share : share;
    const LogitFactors f = FactorsOf(args.d_logits.row(at)[j], logits[j], inverse_rms, width);
    float* sum_of = sums + q * width;
    ForColumns(0, width, [&](auto d, int64_t c) HWY_ATTR {
      const auto value = hn::LoadU(d, v + c), query = hn::Mul(hn::LoadU(d, w + c), hn::LoadU(d, g + c));
      auto sum = hn::MulAdd(hn::Set(d, weight), hn::LoadU(d, dh + c), hn::LoadU(d, dx + c));
      sum = hn::MulAdd(hn::Set(d, f.of_query), query, sum);
      hn::StoreU(hn::MulAdd(hn::Set(d, f.of_value), value, sum), d, dx + c);
      hn::StoreU(hn::MulAdd(hn::Set(d, f.of_query), value, hn::LoadU(d, sum_of + c)), d, sum_of + c);
    });
  }
}

void ReadSourcesBackwardBlocks(const ReadSourcesBackwardArgs& args, int64_t begin_block, int64_t end_block) {
  const int64_t width = args.dh.columns, readers = std::ssize(args.readers), rows = args.dh.rows / readers;
  for (int64_t block = begin_block; block < end_block; ++block) {
    float* sums = args.partials.data + block * readers * width;
    std::fill_n(sums, readers * width, 0.0f);
    const int64_t last = std::min(rows, (block + 1) * kReaderRowBlock);
    for (int64_t row = block * kReaderRowBlock; row < last; ++row) {
      for (int64_t q = 0; q < readers; ++q) {
        if (!args.readers[q].query.empty()) LogitGradients(args, row, q);
      }
      for (int64_t j = 0; j < args.logits.columns; ++j) SourceGradient(args, row, j, sums);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace hadal {
namespace {
HWY_EXPORT(ReadSourcesForwardRows);
HWY_EXPORT(ReadOpenForwardRows);
HWY_EXPORT(ReadOpenBackwardBlocks);
HWY_EXPORT(ReadSourcesBackwardBlocks);

// Adds to the gradients of w and g, from that of w ⊙ g in each block, `stride` floats apart.
void MergeBlocks(const SourceReader& reader, const float* partials, int64_t blocks, int64_t stride) {
  for (int64_t c = 0; c < reader.query.size; ++c) {
    double sum = 0;
    for (int64_t block = 0; block < blocks; ++block) sum += partials[block * stride + c];
    const float gradient = static_cast<float>(sum);
    reader.d_query[c] += gradient * reader.scale[c];
    reader.d_scale[c] += gradient * reader.query[c];
  }
}

}  // namespace

void cpu::ReadSourcesForward(const Stream& stream, const ReadSourcesForwardArgs& args) {
  ForRanges(stream, args.y.rows / std::ssize(args.readers), 1, HWY_DYNAMIC_DISPATCH(ReadSourcesForwardRows), args);
}

void cpu::ReadOpenForward(const Stream& stream, const ReadOpenForwardArgs& args) {
  ForRanges(stream, args.y.rows, 1, HWY_DYNAMIC_DISPATCH(ReadOpenForwardRows), args);
}

void cpu::ReadOpenBackward(const Stream& stream, const ReadOpenBackwardArgs& args) {
  const int64_t width = args.dh.columns, blocks = ReaderPartials(args.dh.rows, 1, 1);
  ForRanges(stream, blocks, 1, HWY_DYNAMIC_DISPATCH(ReadOpenBackwardBlocks), args);
  if (!args.adds) MergeBlocks(args.reader, args.partials.data, blocks, width);
}

void cpu::ReadSourcesBackward(const Stream& stream, const ReadSourcesBackwardArgs& args) {
  const int64_t width = args.dh.columns, readers = std::ssize(args.readers);
  const int64_t blocks = ReaderPartials(args.dh.rows / readers, 1, 1);
  ForRanges(stream, blocks, 1, HWY_DYNAMIC_DISPATCH(ReadSourcesBackwardBlocks), args);
  for (int64_t q = 0; q < readers; ++q) {
    MergeBlocks(args.readers[q], args.partials.data + q * width, blocks, readers * width);
  }
}

}  // namespace hadal

#endif  // HWY_ONCE
