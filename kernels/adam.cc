#include "kernels/adam.h"

#include "kernels/cpu/operations.h"
#include "kernels/device_kernels.h"
#include "runtime/check.h"

namespace hadal {

void AdamStep(const Stream& stream, const AdamArgs& args) {
  HADAL_CHECK_EQ(args.gradient.size, args.parameter.size);
  HADAL_CHECK_EQ(args.first_moment.size, args.parameter.size);
  HADAL_CHECK_EQ(args.second_moment.size, args.parameter.size);
  HADAL_CHECK_GE(args.update, 1);
  HADAL_CHECK(args.beta1 >= 0 && args.beta1 < 1);
  HADAL_CHECK(args.beta2 >= 0 && args.beta2 < 1);
  HADAL_CHECK(args.epsilon >= 0);
  if (!args.rounded.empty()) HADAL_CHECK_EQ(args.rounded.size, args.parameter.size);
  if (stream.device() != nullptr) return stream.device()->kernels().adam_step(stream, args);
  HADAL_CHECK(args.rounded.empty());
  cpu::AdamStep(stream, args);
}

}  // namespace hadal
