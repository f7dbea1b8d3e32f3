#include "kernels/linear.h"

#include "kernels/cpu/operations.h"
#include "kernels/cpu/product.h"
#include "kernels/device_kernels.h"
#include "kernels/gradient_batch.h"
#include "runtime/check.h"

namespace hadal {
namespace {

void CheckRowMajor(const ConstAnyMatrix& m) {
  HADAL_CHECK(!m.empty());
  HADAL_CHECK_GE(m.columns, 1);
  HADAL_CHECK_GE(m.stride, m.columns);
}

// The weight [out, in], and the operands [R, in] and [R, out], or their gradients. Returns whether R > 0.
bool CheckShapes(const ConstAnyMatrix& weight, const ConstAnyMatrix& in, const ConstAnyMatrix& out) {
  CheckRowMajor(weight);
  if (out.rows == 0 && in.rows == 0) return false;
  CheckRowMajor(in);
  CheckRowMajor(out);
  HADAL_CHECK_EQ(in.columns, weight.columns);
  HADAL_CHECK_EQ(out.columns, weight.rows);
  HADAL_CHECK_EQ(out.rows, in.rows);
  return true;
}

}  // namespace

bool HasReluMask(const Stream& stream, const ReluMaskArgs& args) {
  CheckRowMajor(args.hidden_weight);
  CheckRowMajor(args.contraction_weight);
  HADAL_CHECK_EQ(args.contraction_weight.columns, args.hidden_weight.rows);
  if (stream.device() == nullptr || args.rows == 0) return false;
  return stream.device()->kernels().has_relu_mask(stream, args);
}

void LinearForward(const Stream& stream, const LinearForwardArgs& args) {
  if (!CheckShapes(args.weight, args.x, args.y)) return;
  if (!args.bias.empty()) HADAL_CHECK_EQ(args.bias.size, args.weight.rows);
  if (args.relu_mask != nullptr) HADAL_CHECK(args.relu && !args.dropout.active() && stream.device() != nullptr);
  RunKernel(stream, &DeviceKernels::linear_forward, cpu::LinearForward, args);
}

void PackWeight(const Matrix& weight) {
  HADAL_CHECK_EQ(weight.stride, weight.columns);
  HADAL_CHECK_EQ(weight.rows % kPackedRows, 0);
  cpu::PackPanels(weight);
}

void LinearBackwardInput(const Stream& stream, const LinearBackwardInputArgs& args) {
  if (!CheckShapes(args.weight, args.dx, args.dy)) return;
  if (!args.relu_output.empty()) {
    HADAL_CHECK(!args.accumulate);
    HADAL_CHECK_EQ(args.relu_output.rows, args.dx.rows);
    HADAL_CHECK_EQ(args.relu_output.columns, args.dx.columns);
  }
  if (args.relu_mask != nullptr) {
    HADAL_CHECK(args.relu_output.empty() && !args.accumulate && stream.device() != nullptr);
    HADAL_CHECK_EQ(args.mask_scale, 1.0f);
  }
  if (!args.relu_bias_gradient.empty()) {
    HADAL_CHECK(stream.device() != nullptr && !args.relu_output.empty());
    HADAL_CHECK_EQ(args.relu_bias_gradient.size, args.dx.columns);
  }
  RunKernel(stream, &DeviceKernels::linear_backward_input, cpu::LinearBackwardInput, args);
}

void ReluBackward(const Stream& stream, const ReluBackwardArgs& args) {
  if (args.dx.rows == 0) return;
  CheckRowMajor(args.relu_output);
  CheckRowMajor(args.dx);
  HADAL_CHECK_EQ(args.relu_output.rows, args.dx.rows);
  HADAL_CHECK_EQ(args.relu_output.columns, args.dx.columns);
  RunKernel(stream, &DeviceKernels::relu_backward, cpu::ReluBackward, args);
}

void LinearBackwardWeight(const Stream& stream, const LinearBackwardWeightArgs& args) {
  if (!CheckShapes(args.d_weight, args.x, args.dy)) return;
  if (!args.d_bias.empty()) HADAL_CHECK_EQ(args.d_bias.size, args.dy.columns);
  if (stream.device() == nullptr) return cpu::LinearBackwardWeight(stream, args);
  if (args.batch != nullptr) return args.batch->Put(stream, args);
  LinearBackwardWeightArgs alone = args;
  stream.device()->kernels().linear_backward_weights(stream, {&alone, 1}, nullptr);
}

}  // namespace hadal
