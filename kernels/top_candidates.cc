#include "kernels/top_candidates.h"

#include "kernels/cpu/operations.h"
#include "kernels/device_kernels.h"
#include "runtime/check.h"

namespace hadal {

void TopCandidates(const Stream& stream, const TopCandidatesArgs& args) {
  HADAL_CHECK_EQ(args.tokens.rows, args.logits.rows);
  HADAL_CHECK_GE(args.tokens.columns, 1);
  HADAL_CHECK_EQ(args.values.rows, args.tokens.rows);
  HADAL_CHECK_EQ(args.values.columns, args.tokens.columns);
  HADAL_CHECK_EQ(args.also_values.size, args.logits.rows);
  HADAL_CHECK_EQ(args.best.size, args.logits.rows);
  HADAL_CHECK_GE(args.also, 0);
  HADAL_CHECK_LT(args.also, args.logits.columns);
  RunKernel(stream, &DeviceKernels::top_candidates, cpu::TopCandidates, args);
}

}  // namespace hadal
