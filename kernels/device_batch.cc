#include "kernels/device_batch.h"

#include "kernels/cuda/attention.h"
#include "kernels/cuda/unfold.h"
#include "kernels/unfold.h"
#include "runtime/check.h"

namespace hadal {
namespace {

// Assigns the parts of a block, each 16-byte aligned.
class Block {
 public:
  explicit Block(const std::byte* start) : start_(start) {}

  template <typename T>
  const T* Take(int64_t count) {
    constexpr int64_t kAlignment = 16;
    const std::byte* const at = start_ + bytes_;
    bytes_ += (count * static_cast<int64_t>(sizeof(T)) + kAlignment - 1) / kAlignment * kAlignment;
    return reinterpret_cast<const T*>(at);
  }
  int64_t bytes() const { return bytes_; }

 private:
  const std::byte* start_;
  int64_t bytes_ = 0;
};

DeviceTokens TakeTokens(Block& block, int64_t rows) {
  return {.tokens = block.Take<int32_t>(rows),
          .positions = block.Take<int32_t>(rows),
          .group_count = block.Take<int32_t>(1),
          .group_starts = block.Take<int32_t>(rows + 1),
          .group_tokens = block.Take<int32_t>(rows),
          .sorted_rows = block.Take<int32_t>(rows)};
}

DeviceTiles TakeTiles(Block& block, int64_t queries, int64_t keys) {
  return {.queries = block.Take<cuda::AttentionTile>(queries),
          .keys = block.Take<cuda::AttentionTile>(keys),
          .query_capacity = queries,
          .key_capacity = keys};
}

DeviceFrames TakeFrames(Block& block, int64_t source_rows, int64_t width) {
  const auto take = [&](int64_t rows) { return DeviceTaps{block.Take<cuda::RowTaps>(rows), rows}; };
  return {.frames = block.Take<float>(kConvolutionStride * kConvolutionStride * source_rows * width),
          .inner = take(kConvolutionStride * source_rows),
          .outer = take(source_rows)};
}

DeviceBatch TakeAll(const DeviceBatchShape& shape, int32_t first_sublayer, Block& block) {
  DeviceBatch batch{.random = block.Take<RandomPosition>(1),
                    .gradient_scale = block.Take<float>(1),
                    .branch_gains = block.Take<float>(shape.branch_gains),
                    .first_sublayer = first_sublayer};
  batch.source = TakeTokens(block, shape.source_rows);
  batch.target = TakeTokens(block, shape.target_rows);
  batch.targets = block.Take<int32_t>(shape.target_rows);
  batch.source_self = TakeTiles(block, shape.source_tiles, shape.source_tiles);
  batch.target_self = TakeTiles(block, shape.target_tiles, shape.target_tiles);
  batch.cross = TakeTiles(block, shape.target_tiles, shape.source_tiles);
  if (shape.frame_width > 0) batch.speech = TakeFrames(block, shape.source_rows, shape.frame_width);
  return batch;
}

int64_t TileCapacity(const ConstTokens& offsets, int64_t rows) {
  const int64_t tile_rows = cuda::kAttentionTileRows;
  const auto tiles_of = [&](int64_t length) { return (length + tile_rows - 1) / tile_rows; };
  int64_t tiles = 0;
  for (int64_t n = 0; n + 1 < offsets.size; ++n) tiles += tiles_of(offsets[n + 1] - offsets[n]);
  if (offsets.size > 0) tiles += tiles_of(rows - offsets[offsets.size - 1]);
  const int64_t quarter = (rows + 3) / 4;
  return tiles <= quarter ? quarter : rows;
}

}  // namespace

DeviceBatchShape ShapeOf(const BatchContent& content) {
  return {.source_rows = content.source.size,
          .target_rows = content.target.size,
          .source_tiles = TileCapacity(content.source_offsets, content.source.size),
          .target_tiles = TileCapacity(content.target_offsets, content.target.size),
          .branch_gains = content.branch_gains.size,
          .frame_width = content.frames.columns};
}

DeviceBatchShape LargestShape(int64_t source_rows, int64_t target_rows, int64_t branch_gains, int64_t frame_width) {
  return {.source_rows = source_rows,
          .target_rows = target_rows,
          .source_tiles = source_rows,
          .target_tiles = target_rows,
          .branch_gains = branch_gains,
          .frame_width = frame_width};
}

int64_t BatchBytes(const DeviceBatchShape& shape) {
  Block block(nullptr);
  TakeAll(shape, 0, block);
  return block.bytes();
}

DeviceBatch DeviceBatchIn(const DeviceBatchShape& shape, int32_t first_sublayer, const std::byte* block) {
  HADAL_CHECK_EQ(reinterpret_cast<uintptr_t>(block) % 16, 0u);
  Block parts(block);
  return TakeAll(shape, first_sublayer, parts);
}

}  // namespace hadal
