#include "kernels/cpu/operations.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/weighted_sum.cc"
#include "hwy/foreach_target.h"
// Must be included after foreach_target.h.
#include "kernels/cpu/columns-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {

// y += the terms [k, k + 4) of a row: four at once, so that y is loaded and stored a fourth as often.
HWY_INLINE void AddFourTerms(const WeightedSumForwardArgs& args, int64_t row, int64_t k, float* y) {
  const int64_t rows = args.y.rows;
  const float *x0 = args.x.floats().row(k * rows + row), *x1 = args.x.floats().row((k + 1) * rows + row),
              *x2 = args.x.floats().row((k + 2) * rows + row), *x3 = args.x.floats().row((k + 3) * rows + row);
  const float* w = args.weights.data + k;
  ForColumns(0, args.y.columns, [&](auto d, int64_t c) HWY_ATTR {
    auto sum = hn::MulAdd(hn::Set(d, w[0]), hn::LoadU(d, x0 + c), hn::LoadU(d, y + c));
    sum = hn::MulAdd(hn::Set(d, w[1]), hn::LoadU(d, x1 + c), sum);
    sum = hn::MulAdd(hn::Set(d, w[2]), hn::LoadU(d, x2 + c), sum);
    hn::StoreU(hn::MulAdd(hn::Set(d, w[3]), hn::LoadU(d, x3 + c), sum), d, y + c);
  });
}

void WeightedSumForwardRows(const WeightedSumForwardArgs& args, int64_t begin, int64_t end) {
  const int64_t rows = args.y.rows, terms = args.weights.size;
  for (int64_t row = begin; row < end; ++row) {
    float* y = args.y.floats().row(row);
    const float* x = args.x.floats().row(row);
    ForColumns(0, args.y.columns, [&](auto d, int64_t c) HWY_ATTR {
      hn::StoreU(hn::Mul(hn::Set(d, args.weights[0]), hn::LoadU(d, x + c)), d, y + c);
    });
    int64_t k = 1;
    for (; k + 4 <= terms; k += 4) AddFourTerms(args, row, k, y);
    for (; k < terms; ++k) {
      x = args.x.floats().row(k * rows + row);
      ForColumns(0, args.y.columns, [&](auto d, int64_t c) HWY_ATTR {
        hn::StoreU(hn::MulAdd(hn::Set(d, args.weights[k]), hn::LoadU(d, x + c), hn::LoadU(d, y + c)), d, y + c);
      });
    }
  }
}

// partials[block·K + k]: Σ dy·x_k of the block. The same pass writes the gradient of each row.
void WeightedSumBackwardBlocks(const WeightedSumBackwardArgs& args, int64_t begin_block, int64_t end_block) {
  const int64_t rows = args.dy.rows, terms = args.weights.size, width = args.dy.columns;
  for (int64_t block = begin_block; block < end_block; ++block) {
    const int64_t begin = block * kWeightedSumRowBlock, end = std::min(rows, begin + kWeightedSumRowBlock);
    for (int64_t k = 0; k < terms; ++k) {
      const float weight = args.weights[k];
      double sum = 0;
      for (int64_t row = begin; row < end; ++row) {
        const float *dy = args.dy.floats().row(row), *x = args.x.floats().row(k * rows + row);
        float* dx = args.dx.row(k * rows + row);
        sum += SumColumns(width, [&](auto d, int64_t c) HWY_ATTR {
          const auto gradient = hn::LoadU(d, dy + c);
          hn::StoreU(hn::MulAdd(hn::Set(d, weight), gradient, hn::LoadU(d, dx + c)), d, dx + c);
          return hn::Mul(gradient, hn::LoadU(d, x + c));
        });
      }
      args.partials[block * terms + k] = static_cast<float>(sum);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace hadal {

HWY_EXPORT(WeightedSumBackwardBlocks);
HADAL_RANGE_OPERATION(WeightedSumForward, WeightedSumForwardRows, args.y.rows, kWeightedSumRowBlock);

void cpu::WeightedSumBackward(const Stream& stream, const WeightedSumBackwardArgs& args) {
  const int64_t terms = args.weights.size, blocks = WeightedSumPartials(args.dy.rows, terms) / terms;
  ForRanges(stream, blocks, 1, HWY_DYNAMIC_DISPATCH(WeightedSumBackwardBlocks), args);
  for (int64_t k = 0; k < terms; ++k) {
    double sum = 0;
    for (int64_t block = 0; block < blocks; ++block) sum += args.partials[block * terms + k];
    args.d_weights[k] += static_cast<float>(sum);
  }
}

}  // namespace hadal

#endif  // HWY_ONCE
