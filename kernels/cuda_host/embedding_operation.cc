#include <vector>

#include "kernels/cuda/embedding.h"
#include "kernels/cuda_host/operation_functions.h"
#include "kernels/cuda_host/operation_views.h"

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

void operation::EmbeddingForward(const Stream& stream, const hadal::EmbeddingForwardArgs& args) {
  LaunchDevice& device = DeviceOf(stream);
  DeviceTokens device_tokens = args.device_tokens;
  if (device_tokens.tokens == nullptr) {
    LaunchMemory& memory = device.launch_memory();
    std::vector<int32_t> counted;
    ConstTokens positions = args.row_positions;
    if (positions.empty()) {
      counted = RowPositions(args.offsets);
      positions = {counted.data(), static_cast<int64_t>(counted.size())};
    }
    device_tokens.tokens = memory.Put(args.tokens.data, args.tokens.size).address;
    device_tokens.positions = memory.Put(positions.data, positions.size).address;
  }
  const auto launch = [&]<typename Table, typename Stream>(Table, Stream) {
    cuda::EmbeddingForward<Table, Stream>(device.handle(), {.rows = args.tokens.size,
                                                            .width = args.x.columns,
                                                            .tokens = device_tokens.tokens,
                                                            .row_positions = device_tokens.positions,
                                                            .table = ViewOf<Table>(args.table),
                                                            .positions = ViewOf(args.positions),
                                                            .multiplier = args.multiplier,
                                                            .dropout = ViewOf(args.dropout, device),
                                                            .x = ViewOf<Stream>(args.x)});
  };
  if (args.table.storage == Storage::kFloat32) return launch(float(), float());
  WithElement(args.x.storage, [&]<typename Stream>(Stream) { launch(BFloat16(), Stream()); });
}

void operation::EmbeddingBackward(const Stream& stream, const hadal::EmbeddingBackwardArgs& args) {
  LaunchDevice& device = DeviceOf(stream);
  DeviceTokens device_tokens = args.device_tokens;
  if (device_tokens.tokens == nullptr) {
    LaunchMemory& memory = device.launch_memory();
    const TokenGroups groups = GroupRowsByToken({args.tokens.data, args.tokens.data + args.tokens.size});
    const int32_t count = static_cast<int32_t>(groups.tokens.size());
    device_tokens.group_count = memory.Put(count).address;
    device_tokens.group_starts = memory.Put(groups.starts.data(), count + 1).address;
    device_tokens.group_tokens = memory.Put(groups.tokens.data(), count).address;
    device_tokens.sorted_rows = memory.Put(groups.sorted_rows.data(), groups.sorted_rows.size()).address;
  }
  WithElement(args.dx.storage, [&]<typename Stream>(Stream) {
    cuda::EmbeddingBackward<Stream>(device.handle(), {.max_groups = args.tokens.size,
                                                      .width = args.dx.columns,
                                                      .group_count = device_tokens.group_count,
                                                      .group_starts = device_tokens.group_starts,
                                                      .group_tokens = device_tokens.group_tokens,
                                                      .sorted_rows = device_tokens.sorted_rows,
                                                      .dx = ViewOf<Stream>(args.dx),
                                                      .multiplier = args.multiplier,
                                                      .dropout = ViewOf(args.dropout, device),
                                                      .d_table = ViewOf(args.d_table)});
  });
}

}  // namespace hadal::cuda
