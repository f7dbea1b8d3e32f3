#include "kernels/cuda_host/operations.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/unfold.h"
#include "kernels/unfold.h"
#include "runtime/check.h"

namespace hadal::cuda {
namespace {

// DeviceBatchIn returns pointers to const; the caller owns the block and may write to it.
template <typename T>
T* Writable(const T* place) {
  return const_cast<T*>(place);
}

template <typename T, typename Values>
void Write(const T* place, const Values& values) {
  std::copy(values.begin(), values.end(), Writable(place));
}

std::vector<int32_t> List(const ConstTokens& tokens) { return {tokens.data, tokens.data + tokens.size}; }

void WriteTokens(const std::vector<int32_t>& list, const ConstTokens& offsets, const DeviceTokens& to) {
  Write(to.tokens, list);
  std::vector<int32_t> positions(list.size(), -1);
  for (int64_t n = 0; n + 1 < offsets.size; ++n) {
    for (int32_t row = offsets[n]; row < offsets[n + 1]; ++row) positions[row] = row - offsets[n];
  }
  Write(to.positions, positions);
  const TokenGroups groups = GroupRowsByToken(list);
  *Writable(to.group_count) = static_cast<int32_t>(groups.tokens.size());
  Write(to.group_starts, groups.starts);
  Write(to.group_tokens, groups.tokens);
  Write(to.sorted_rows, groups.sorted_rows);
}

void WriteTiles(const std::vector<int32_t>& queries, const std::vector<int32_t>& keys, const DeviceTiles& to) {
  const auto write = [](const AttentionTile* place, int64_t capacity, std::vector<AttentionTile> tiles) {
    HADAL_CHECK_LE(static_cast<int64_t>(tiles.size()), capacity);
    tiles.resize(capacity);
    Write(place, tiles);
  };
  AttentionTiles tiles = CutIntoTiles(queries, keys);
  write(to.queries, to.query_capacity, std::move(tiles.of_queries));
  write(to.keys, to.key_capacity, std::move(tiles.of_keys));
}

// Returns the sentences of one side, followed by its padding rows as sentences of one tile each.
std::vector<int32_t> WithPadding(const ConstTokens& offsets, int64_t rows) {
  std::vector<int32_t> list = List(offsets);
  if (list.empty()) return list;
  while (list.back() < rows) {
    list.push_back(static_cast<int32_t>(std::min<int64_t>(list.back() + kAttentionTileRows, rows)));
  }
  return list;
}

// Padding queries see no key, padding keys no query.
void WriteCrossTiles(const BatchContent& content, const DeviceTiles& to) {
  std::vector<int32_t> queries = List(content.target_offsets), keys = List(content.source_offsets);
  const int32_t last_query = static_cast<int32_t>(content.target.size),
                last_key = static_cast<int32_t>(content.source.size);
  queries.insert(queries.end(), {last_query, last_query});
  keys.insert(keys.end(), {keys.back(), last_key});
  WriteTiles(queries, keys, to);
}

// The front end of speech looks its rows up in themselves.
std::vector<int32_t> SourceTokens(const BatchContent& content) {
  std::vector<int32_t> list = List(content.source);
  if (content.frames.empty()) return list;
  for (size_t row = 0; row < list.size(); ++row) {
    if (list[row] >= 0) list[row] = static_cast<int32_t>(row);
  }
  return list;
}

void WriteFrames(const BatchContent& content, const DeviceFrames& to) {
  const std::vector<int32_t> frames = List(content.frame_offsets), outer = List(content.source_offsets);
  std::vector<int32_t> inner(1, 0);
  for (size_t n = 0; n + 1 < frames.size(); ++n) {
    inner.push_back(inner.back() + static_cast<int32_t>(UnfoldedRows(frames[n + 1] - frames[n])));
  }
  const auto write = [](const DeviceTaps& to, std::vector<RowTaps> taps) {
    HADAL_CHECK_LE(static_cast<int64_t>(taps.size()), to.rows);
    taps.resize(to.rows);
    Write(to.taps, taps);
  };
  write(to.inner, TapsOfRows(frames, inner));
  write(to.outer, TapsOfRows(inner, outer));
  HADAL_CHECK_LE(content.frames.rows, kConvolutionStride * to.inner.rows);
  std::copy_n(content.frames.data, content.frames.rows * content.frames.columns, Writable(to.frames));
}

}  // namespace

void WriteBatch(const BatchContent& content, const DeviceBatchShape& shape, std::byte* block) {
  const DeviceBatch device_batch = DeviceBatchIn(shape, content.first_sublayer, block);
  *Writable(device_batch.random) = content.random;
  *Writable(device_batch.gradient_scale) = content.gradient_scale;
  std::copy_n(content.branch_gains.data, content.branch_gains.size, Writable(device_batch.branch_gains));
  WriteTokens(SourceTokens(content), content.source_offsets, device_batch.source);
  WriteTokens(List(content.target_input), content.target_offsets, device_batch.target);
  Write(device_batch.targets, List(content.target));
  const auto self = [&](const ConstTokens& offsets, int64_t rows, const DeviceTiles& to) {
    const std::vector<int32_t> sentences = WithPadding(offsets, rows);
    WriteTiles(sentences, sentences, to);
  };
  self(content.source_offsets, content.source.size, device_batch.source_self);
  self(content.target_offsets, content.target.size, device_batch.target_self);
  if (content.source.size > 0) WriteCrossTiles(content, device_batch.cross);
  if (!content.frames.empty()) WriteFrames(content, device_batch.speech);
}

}  // namespace hadal::cuda
