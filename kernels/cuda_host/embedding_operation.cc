#include <vector>

#include "kernels/cuda/embedding.h"
#include "kernels/cuda_host/dropout_position.h"
#include "kernels/cuda_host/operations.h"

namespace hadal::cuda {
namespace {

// Returns the position of each row in its sentence.
std::vector<int32_t> RowPositions(const ConstTokens& offsets) {
  std::vector<int32_t> positions;
  for (int64_t n = 0; n + 1 < offsets.size; ++n) {
    for (int32_t row = offsets[n]; row < offsets[n + 1]; ++row) positions.push_back(row - offsets[n]);
  }
  return positions;
}

}  // namespace

void operation::EmbeddingForward(const Stream& stream, const EmbeddingForwardArgs& args) {
  LaunchDevice& device = DeviceOf(stream);
  EmbeddingForwardArgs placed = args;
  if (args.device_tokens.tokens == nullptr) {
    LaunchMemory& memory = device.launch_memory();
    std::vector<int32_t> counted;
    ConstTokens positions = args.row_positions;
    if (positions.empty()) {
      counted = RowPositions(args.offsets);
      positions = {counted.data(), static_cast<int64_t>(counted.size())};
    }
    placed.device_tokens.tokens = memory.Put(args.tokens.data, args.tokens.size).address;
    placed.device_tokens.positions = memory.Put(positions.data, positions.size).address;
  }
  placed.dropout = OnDevice(args.dropout, device);
  cuda::EmbeddingForward(device.handle(), placed);
}

void operation::EmbeddingBackward(const Stream& stream, const EmbeddingBackwardArgs& args) {
  LaunchDevice& device = DeviceOf(stream);
  EmbeddingBackwardArgs placed = args;
  if (args.device_tokens.tokens == nullptr) {
    LaunchMemory& memory = device.launch_memory();
    const TokenGroups groups = GroupRowsByToken({args.tokens.data, args.tokens.data + args.tokens.size});
    const int32_t count = static_cast<int32_t>(groups.tokens.size());
    placed.device_tokens.group_count = memory.Put(count).address;
    placed.device_tokens.group_starts = memory.Put(groups.starts.data(), count + 1).address;
    placed.device_tokens.group_tokens = memory.Put(groups.tokens.data(), count).address;
    placed.device_tokens.sorted_rows = memory.Put(groups.sorted_rows.data(), groups.sorted_rows.size()).address;
    if (!args.d_positions.empty()) {
      const std::vector<int32_t> positions = RowPositions(args.offsets);
      placed.device_tokens.positions = memory.Put(positions.data(), std::ssize(positions)).address;
    }
  }
  placed.dropout = OnDevice(args.dropout, device);
  cuda::EmbeddingBackward(device.handle(), placed);
}

}  // namespace hadal::cuda
