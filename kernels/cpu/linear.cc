#include "kernels/cpu/linear.h"

#include "kernels/cpu/linear_epilogue.h"
#include "kernels/cpu/product.h"
#include "runtime/check.h"

namespace hadal::cpu {

void LinearForward(const Stream& stream, const LinearForwardArgs& args) {
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
          [&](const ProductPart& part) { ApplyLinearEpilogue(args, part); });
}

void LinearBackwardInput(const Stream& stream, const LinearBackwardInputArgs& args) {
  const Matrix dx = args.dx.floats();
  const ConstMatrix relu_output = args.relu_output.floats();
  Product(stream,
          {.form = ProductForm::kRowsByColumns,
           .a = args.dy.floats(),
           .b = args.weight.floats(),
           .add = args.accumulate,
           .c = dx},
          [&](const ProductPart& part) {
            if (!relu_output.empty()) ApplyReluMask(part.Of(relu_output), args.mask_scale, part.Of(dx));
          });
}

void ReluBackward(const Stream& stream, const ReluBackwardArgs& args) {
  stream.ForRanges(args.dx.rows, 16, [&](int64_t begin, int64_t end) {
    ApplyReluMask(args.relu_output.floats().Rows(begin, end - begin), args.mask_scale,
                  args.dx.floats().Rows(begin, end - begin));
  });
}

void LinearBackwardWeight(const Stream& stream, const LinearBackwardWeightArgs& args) {
  const ConstMatrix dy = args.dy.floats();
  Product(stream, {.form = ProductForm::kColumnsByColumns, .a = dy, .b = args.x.floats(), .c = args.d_weight},
          [](const ProductPart&) {});
  if (args.d_bias.empty()) return;
  stream.ForRanges(dy.columns, 32, [&](int64_t begin, int64_t end) {
    AddColumnSums(dy.Columns(begin, end - begin), args.d_bias.data + begin);
  });
}

}  // namespace hadal::cpu
