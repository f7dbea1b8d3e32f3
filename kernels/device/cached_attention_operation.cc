#include "kernels/cuda/cached_attention.h"

#include "kernels/device/operation_functions.h"
#include "kernels/device/operation_views.h"

namespace hadal::cuda {

void operation::CachedAttention(const Stream& stream, const hadal::CachedAttentionArgs& args) {
  LaunchDevice& device = DeviceOf(stream);
  LaunchMemory& memory = device.launch_memory();
  cuda::CachedAttention(device.handle(), {.rows = args.q.rows,
                                          .heads = args.heads,
                                          .head_width = args.q.columns / args.heads,
                                          .q = ViewOf(args.q),
                                          .cache = ViewOf(args.cache),
                                          .index = memory.Put(args.index.data, args.q.rows * args.index_stride),
                                          .index_stride = args.index_stride,
                                          .lengths = memory.Put(args.lengths.data, args.lengths.size),
                                          .context = ViewOf(args.context)});
}

}  // namespace hadal::cuda
