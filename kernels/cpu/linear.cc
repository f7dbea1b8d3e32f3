// Linear layers on the CPU: products (product.h) and their epilogues: bias, ReLU and dropout in forward, ReLU mask and
// column sums in backward. A thread computes an epilogue for elements that it has just computed, while they are in
// cache.
#include "kernels/cpu/operations.h"
#include "kernels/cpu/product.h"
#include "runtime/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/linear.cc"
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
  window.ForRow(row * args.y.columns, part.column, end, [&](auto d, int64_t c, const float* factors) HWY_ATTR {
    auto value = hn::LoadU(d, y + c);
    if (bias != nullptr) value = hn::Add(value, hn::LoadU(d, bias + c));
    if (args.relu) value = hn::IfThenZeroElse(hn::Lt(value, hn::Zero(d)), value);  // keeps a NaN
    if (factors != nullptr) value = hn::Mul(value, hn::LoadU(d, factors + c));
    hn::StoreU(value, d, y + c);
  });
}

}  // namespace

// y = dropout(relu(y + bias)) on a part of args.y; each operation only if args has it.
void LinearEpiloguePart(const LinearForwardArgs& args, const cpu::ProductPart& part) {
  // Rows that follow each other without a gap share one draw of the generator.
  const int64_t together = part.columns == args.y.columns ? part.rows : 1;
  for (int64_t first = part.row; first < part.row + part.rows; first += together) {
    DropoutWindow window(args.dropout, (first + together - 1) * args.y.columns + part.column + part.columns);
    for (int64_t row = first; row < first + together; ++row) LinearEpilogueRow(args, part, row, window);
  }
}

// dx = relu_output > 0 ? dx · mask_scale : 0.
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

// sums[c] += Σ_rows dy[row, c], rows in ascending order. Four rows at a time, so that the sums are loaded and stored
// once for all four.
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

HWY_EXPORT(LinearEpiloguePart);
HWY_EXPORT(ReluMaskRows);
HWY_EXPORT(ColumnSums);

void cpu::LinearForward(const Stream& stream, const LinearForwardArgs& args) {
  const ConstMatrix weight(static_cast<const float*>(args.weight.data), args.weight.rows, args.weight.columns,
                           args.weight.stride);
  const bool in_panels = args.weight.storage == Storage::kPanels;
  HADAL_CHECK(in_panels || args.weight.storage == Storage::kFloat32);
  Product(stream,
          {.form = ProductForm::kRowsByRows,
           .a = args.x.floats(),
           .b = weight,
           .b_in_panels = in_panels,
           .c = args.y.floats()},
          [&](const ProductPart& part) {
            if (args.bias.empty() && !args.relu && !args.dropout.active()) return;
            HWY_DYNAMIC_DISPATCH(LinearEpiloguePart)(args, part);
          });
}

void cpu::LinearBackwardInput(const Stream& stream, const LinearBackwardInputArgs& args) {
  const Matrix dx = args.dx.floats();
  const ConstMatrix relu_output = args.relu_output.floats();
  Product(stream,
          {.form = ProductForm::kRowsByColumns,
           .a = args.dy.floats(),
           .b = args.weight.floats(),
           .add = args.accumulate,
           .c = dx},
          [&](const ProductPart& part) {
            if (relu_output.empty()) return;
            HWY_DYNAMIC_DISPATCH(ReluMaskRows)(part.Of(relu_output), args.mask_scale, part.Of(dx));
          });
}

void cpu::ReluBackward(const Stream& stream, const ReluBackwardArgs& args) {
  const ConstMatrix y = args.relu_output.floats();
  const Matrix dx = args.dx.floats();
  stream.ForRanges(dx.rows, 16, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(ReluMaskRows)(y.Rows(begin, end - begin), args.mask_scale, dx.Rows(begin, end - begin));
  });
}

void cpu::LinearBackwardWeight(const Stream& stream, const LinearBackwardWeightArgs& args) {
  const ConstMatrix dy = args.dy.floats();
  Product(stream, {.form = ProductForm::kColumnsByColumns, .a = dy, .b = args.x.floats(), .c = args.d_weight},
          [](const ProductPart&) {});
  if (args.d_bias.empty()) return;
  stream.ForRanges(dy.columns, 32, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(ColumnSums)(dy.Columns(begin, end - begin), args.d_bias.data + begin);
  });
}

}  // namespace hadal

#endif  // HWY_ONCE
