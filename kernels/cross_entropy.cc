#include "kernels/cross_entropy.h"

#include "kernels/cpu/operations.h"
#include "kernels/device_kernels.h"
#include "runtime/check.h"

namespace hadal {

void CrossEntropy(const Stream& stream, const CrossEntropyArgs& args) {
  const bool known = !args.targets.empty() || stream.device() == nullptr || args.device_targets == nullptr;
  if (known) HADAL_CHECK_EQ(args.targets.size, args.logits.rows);
  HADAL_CHECK_EQ(args.loss.size, args.logits.rows);
  HADAL_CHECK_EQ(args.nll.size, args.logits.rows);
  if (!args.hits.empty()) HADAL_CHECK_EQ(args.hits.size, args.logits.rows);
  HADAL_CHECK_GE(args.logits.stride, args.logits.columns);
  HADAL_CHECK(args.label_smoothing >= 0 && args.label_smoothing < 1);
  HADAL_CHECK(args.z_loss >= 0);
  HADAL_CHECK(args.label_smoothing == 0 || args.logits.columns > 1);
  for (int64_t i = 0; i < args.targets.size; ++i) {
    HADAL_CHECK_GE(args.targets[i], args.device_targets != nullptr ? -1 : 0);  // −1: a padding row
    HADAL_CHECK_LT(args.targets[i], args.logits.columns);
  }
  RunKernel(stream, &DeviceKernels::cross_entropy, cpu::CrossEntropy, args);
}

}  // namespace hadal
