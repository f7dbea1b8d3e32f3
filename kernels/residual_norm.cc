#include "kernels/residual_norm.h"

#include "kernels/cpu/operations.h"
#include "kernels/device_kernels.h"
#include "runtime/check.h"

namespace hadal {
namespace {

// Accepts an empty matrix, which means "not given".
void CheckGiven(const ConstAnyMatrix& m, int64_t rows, int64_t width) {
  if (m.empty()) return;
  HADAL_CHECK_EQ(m.rows, rows);
  HADAL_CHECK_EQ(m.columns, width);
  HADAL_CHECK_GE(m.stride, m.columns);
}

void CheckSize(const ConstVector& v, int64_t size) {
  if (!v.empty()) HADAL_CHECK_EQ(v.size, size);
}

}  // namespace

void ResidualNormForward(const Stream& stream, const ResidualNormForwardArgs& args) {
  const int64_t rows = args.residual.rows, width = args.residual.columns;
  if (rows == 0) return;
  HADAL_CHECK(!args.residual.empty());
  HADAL_CHECK_GE(width, 1);
  for (const ConstAnyMatrix& m :
       {args.residual, args.branch, args.skip, ConstAnyMatrix(args.sum), ConstAnyMatrix(args.normed),
        ConstAnyMatrix(args.second), ConstAnyMatrix(args.second_sum)}) {
    CheckGiven(m, rows, width);
  }
  HADAL_CHECK(args.second_sum.empty() || !args.branch.empty());
  HADAL_CHECK(args.second.empty() || !args.second_sum.empty());
  const bool norm = !args.scale.empty();
  HADAL_CHECK(args.shift.empty() || norm);
  HADAL_CHECK_EQ(!args.normed.empty(), norm);
  HADAL_CHECK_EQ(!args.mean.empty(), norm);
  HADAL_CHECK_EQ(!args.rstd.empty(), norm);
  HADAL_CHECK(norm || !args.sum.empty());
  for (const ConstVector& v : {args.bias, args.scale, args.shift, args.learned_residual_gain}) CheckSize(v, width);
  CheckSize(args.learned_branch_gain, 1);
  for (const ConstVector& v : {ConstVector(args.mean), ConstVector(args.rstd)}) CheckSize(v, rows);
  if (norm) {
    HADAL_CHECK_NE(args.normed.data, args.residual.data);
    HADAL_CHECK_NE(args.normed.data, args.branch.data);
    HADAL_CHECK_NE(args.normed.data, args.sum.data);
  }
  RunKernel(stream, &DeviceKernels::residual_norm_forward, cpu::ResidualNormForward, args);
}

void ResidualNormBackward(const Stream& stream, const ResidualNormBackwardArgs& args) {
  const int64_t rows = args.d_residual.rows, width = args.d_residual.columns;
  if (rows == 0) return;
  HADAL_CHECK(!args.d_residual.empty());
  HADAL_CHECK_GE(width, 1);
  for (const ConstAnyMatrix& m :
       {args.d_normed, args.d_sum, args.sum, args.residual, args.branch, ConstAnyMatrix(args.d_branch),
        ConstAnyMatrix(args.d_skip), ConstAnyMatrix(args.d_second)}) {
    CheckGiven(m, rows, width);
  }
  HADAL_CHECK(args.d_second.empty() || !args.d_branch.empty());
  HADAL_CHECK(!args.second_starts || !args.d_second.empty());
  const bool norm = !args.d_normed.empty();
  HADAL_CHECK(norm || !args.d_sum.empty());
  HADAL_CHECK_EQ(!args.sum.empty(), norm);
  HADAL_CHECK_EQ(!args.mean.empty(), norm);
  HADAL_CHECK_EQ(!args.rstd.empty(), norm);
  HADAL_CHECK_EQ(!args.scale.empty(), norm);
  HADAL_CHECK_EQ(!args.d_scale.empty(), norm);
  HADAL_CHECK(args.d_shift.empty() || norm);
  HADAL_CHECK(args.d_bias.empty() || !args.d_branch.empty());
  for (const ConstVector& v :
       {args.scale, args.bias, args.learned_residual_gain, ConstVector(args.d_learned_residual_gain),
        ConstVector(args.d_bias), ConstVector(args.d_scale), ConstVector(args.d_shift)}) {
    CheckSize(v, width);
  }
  for (const ConstVector& v : {args.mean, args.rstd}) CheckSize(v, rows);
  for (const ConstVector& v : {args.learned_branch_gain, ConstVector(args.d_learned_branch_gain)}) CheckSize(v, 1);
  const bool learned_residual = !args.learned_residual_gain.empty(), learned_branch = !args.learned_branch_gain.empty();
  HADAL_CHECK_EQ(!args.d_learned_residual_gain.empty(), learned_residual);
  HADAL_CHECK_EQ(!args.d_learned_branch_gain.empty(), learned_branch);
  HADAL_CHECK(!args.d_branch.empty() || (!learned_residual && !learned_branch));
  HADAL_CHECK(!args.residual.empty() || !learned_residual);
  HADAL_CHECK(!args.branch.empty() || !learned_branch);
  if (norm || !args.d_bias.empty() || learned_residual || learned_branch) {
    HADAL_CHECK_GE(args.partials.size, ResidualNormPartials(rows, width));
  }
  HADAL_CHECK_NE(args.d_branch.data, args.d_residual.data);
  RunKernel(stream, &DeviceKernels::residual_norm_backward, cpu::ResidualNormBackward, args);
}

}  // namespace hadal
