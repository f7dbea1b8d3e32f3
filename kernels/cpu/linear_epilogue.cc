#include "kernels/cpu/linear_epilogue.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/linear_epilogue.cc"
#include "hwy/foreach_target.h"
// Must be included after foreach_target.h.
#include "kernels/cpu/columns-inl.h"
#include "kernels/cpu/dropout-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {

namespace {

HWY_INLINE void LinearEpilogueRow(const LinearForwardArgs& args, const cpu::ProductPart& part, int64_t row,
                                  DropoutWindow& window) {
  const int64_t end = part.column + part.columns;
  const float* bias = args.bias.floats().data;
  float* y = args.y.floats().row(row);
  for (int64_t first = part.column; first < end; first += DropoutWindow::kCapacity) {
    const int64_t last = std::min(end, first + DropoutWindow::kCapacity);
    const float* factors = nullptr;
    if (args.dropout.active()) factors = window.Get(row * args.y.columns + first, last - first) - first;
    ForColumns(first, last, [&](auto d, int64_t c) HWY_ATTR {
      auto value = hn::LoadU(d, y + c);
      if (bias != nullptr) value = hn::Add(value, hn::LoadU(d, bias + c));
      if (args.relu) value = hn::IfThenZeroElse(hn::Lt(value, hn::Zero(d)), value);  // keeps a NaN
      if (factors != nullptr) value = hn::Mul(value, hn::LoadU(d, factors + c));
      hn::StoreU(value, d, y + c);
    });
  }
}

}  // namespace

void LinearEpiloguePart(const LinearForwardArgs& args, const cpu::ProductPart& part) {
  // Rows that follow each other without a gap share one draw of the generator.
  const int64_t together = part.columns == args.y.columns ? part.rows : 1;
  for (int64_t first = part.row; first < part.row + part.rows; first += together) {
    DropoutWindow window(args.dropout, (first + together - 1) * args.y.columns + part.column + part.columns);
    for (int64_t row = first; row < first + together; ++row) LinearEpilogueRow(args, part, row, window);
  }
}

void ReluMaskRows(const ConstMatrix& relu_output, float mask_scale, const Matrix& dx) {
  for (int64_t row = 0; row < dx.rows; ++row) {
    const float* y = relu_output.row(row);
    float* to = dx.row(row);
    ForColumns(0, dx.columns, [&](auto d, int64_t c) HWY_ATTR {
      const auto passed = hn::Gt(hn::LoadU(d, y + c), hn::Zero(d));
      const auto scaled = hn::Mul(hn::LoadU(d, to + c), hn::Set(d, mask_scale));
      hn::StoreU(hn::IfThenElseZero(passed, scaled), d, to + c);
    });
  }
}

// Four rows at a time, so that the sums are loaded and stored once for all four.
void ColumnSums(const ConstMatrix& dy, float* HWY_RESTRICT sums) {
  int64_t row = 0;
  for (; row + 4 <= dy.rows; row += 4) {
    const float *row0 = dy.row(row), *row1 = dy.row(row + 1), *row2 = dy.row(row + 2), *row3 = dy.row(row + 3);
    ForColumns(0, dy.columns, [&](auto d, int64_t c) HWY_ATTR {
      auto sum = hn::Add(hn::LoadU(d, sums + c), hn::LoadU(d, row0 + c));
      sum = hn::Add(sum, hn::LoadU(d, row1 + c));
      sum = hn::Add(sum, hn::LoadU(d, row2 + c));
      hn::StoreU(hn::Add(sum, hn::LoadU(d, row3 + c)), d, sums + c);
    });
  }
  for (; row < dy.rows; ++row) {
    const float* row0 = dy.row(row);
    ForColumns(0, dy.columns, [&](auto d, int64_t c) HWY_ATTR {
      hn::StoreU(hn::Add(hn::LoadU(d, sums + c), hn::LoadU(d, row0 + c)), d, sums + c);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace hadal {
namespace {
HWY_EXPORT(LinearEpiloguePart);
HWY_EXPORT(ReluMaskRows);
HWY_EXPORT(ColumnSums);
}  // namespace

void cpu::ApplyLinearEpilogue(const LinearForwardArgs& args, const ProductPart& part) {
  if (args.bias.empty() && !args.relu && !args.dropout.active()) return;
  HWY_DYNAMIC_DISPATCH(LinearEpiloguePart)(args, part);
}

void cpu::ApplyReluMask(const ConstMatrix& relu_output, float mask_scale, const Matrix& dx) {
  HWY_DYNAMIC_DISPATCH(ReluMaskRows)(relu_output, mask_scale, dx);
}

void cpu::AddColumnSums(const ConstMatrix& dy, float* sums) { HWY_DYNAMIC_DISPATCH(ColumnSums)(dy, sums); }

}  // namespace hadal

#endif  // HWY_ONCE
