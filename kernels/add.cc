#include "kernels/add.h"

#include "kernels/device_kernels.h"
#include "runtime/check.h"

namespace hadal {

void Add(const Stream& stream, const AddArgs& args) {
  HADAL_CHECK_EQ(args.values.size, args.sum.size);
  if (args.sum.size == 0) return;
  if (stream.device() != nullptr) return stream.device()->kernels().add(stream, args);
  stream.ForRanges(args.sum.size, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) args.sum[i] += args.values[i];
  });
}

}  // namespace hadal
