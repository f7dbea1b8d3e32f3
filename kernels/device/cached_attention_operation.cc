#include "kernels/cuda/cached_attention.h"

#include <algorithm>
#include <vector>

#include "kernels/device/operation_functions.h"
#include "kernels/device/operation_views.h"

namespace hadal::cuda {

// Of the index only what is read goes to the device, of as many rows at a time as launch memory takes.
void operation::CachedAttention(const Stream& stream, const hadal::CachedAttentionArgs& args) {
  LaunchDevice& device = DeviceOf(stream);
  LaunchMemory& memory = device.launch_memory();
  const int64_t rows = args.q.rows;
  const int64_t longest = *std::max_element(args.lengths.data, args.lengths.data + rows);
  const int64_t most = std::max<int64_t>(LaunchMemory::kHalfBytes / static_cast<int64_t>(sizeof(int32_t)) / longest, 1);
  std::vector<int32_t> index;
  for (int64_t first = 0, count = 0; first < rows; first += count) {
    count = std::min(most, rows - first);
    index.assign(count * longest, 0);
    for (int64_t i = 0; i < count; ++i) {
      std::copy_n(args.index.data + (first + i) * args.index_stride, args.lengths[first + i], &index[i * longest]);
    }
    const hadal::Matrix context = args.context.Rows(first, count);
    cuda::CachedAttention(device.handle(), {.rows = count,
                                            .heads = args.heads,
                                            .head_width = args.q.columns / args.heads,
                                            .q = ViewOf(args.q.Rows(first, count)),
                                            .cache = ViewOf(args.cache),
                                            .index = memory.Put(index.data(), std::ssize(index)),
                                            .index_stride = longest,
                                            .lengths = memory.Put(args.lengths.data + first, count),
                                            .context = ViewOf(context)});
  }
}

}  // namespace hadal::cuda
