#include "kernels/cuda/cached_attention.h"

#include <algorithm>
#include <vector>

#include "kernels/cuda_host/dropout_position.h"
#include "kernels/cuda_host/operations.h"
#include "runtime/check.h"

namespace hadal::cuda {
namespace {

// Device addresses of the index and lengths of rows [first, first + count).
struct DeviceIndices {
  DevicePointer<const int32_t> index, lengths;
  int64_t stride = 0;
};

void Attend(LaunchDevice& device, const hadal::CachedAttentionArgs& args, int64_t first, int64_t count,
            const DeviceIndices& indices) {
  WithElement(args.q.storage, [&]<typename T>(T) {
    cuda::CachedAttention<T>(device.handle(), {.rows = count,
                                               .heads = args.heads,
                                               .head_width = args.q.columns / args.heads,
                                               .q = ViewOf<T>(args.q.Rows(first, count)),
                                               .cache = ViewOf<T>(args.cache),
                                               .index = indices.index,
                                               .index_stride = indices.stride,
                                               .lengths = indices.lengths,
                                               .output = ViewOf<T>(args.output.Rows(first, count)),
                                               .group = args.group,
                                               .rotary = DeviceRotaryOf(args.rotary),
                                               .reach = args.reach});
  });
}

}  // namespace

// Without device addresses, copies only the part of the index that is read, for as many rows at a time as fit into
// launch memory.
void operation::CachedAttention(const Stream& stream, const hadal::CachedAttentionArgs& args) {
  LaunchDevice& device = DeviceOf(stream);
  const int64_t rows = args.q.rows;
  if (args.device_index != nullptr) {
    HADAL_CHECK(args.device_lengths != nullptr);
    return Attend(device, args, 0, rows, {args.device_index, args.device_lengths, args.index_stride});
  }
  LaunchMemory& memory = device.launch_memory();
  const int64_t longest = *std::max_element(args.lengths.data, args.lengths.data + rows);
  const int64_t most = std::max<int64_t>(LaunchMemory::kHalfBytes / static_cast<int64_t>(sizeof(int32_t)) / longest, 1);
  std::vector<int32_t> index;
  for (int64_t first = 0, count = 0; first < rows; first += count) {
    count = std::min(most, rows - first);
    index.assign(count * longest, 0);
    for (int64_t i = 0; i < count; ++i) {
      std::copy_n(args.index.data + (first + i) * args.index_stride, args.lengths[first + i], &index[i * longest]);
    }
    const DevicePointer<const int32_t> device_index = memory.Put(index.data(), std::ssize(index));
    Attend(device, args, first, count, {device_index, memory.Put(args.lengths.data + first, count), longest});
  }
}

}  // namespace hadal::cuda
