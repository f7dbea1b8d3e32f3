#include <vector>

#include "kernels/cuda/attention.h"
#include "kernels/cuda_host/dropout_position.h"
#include "kernels/cuda_host/operations.h"
#include "runtime/check.h"

namespace hadal::cuda {
namespace {

struct TiledShape {
  TiledShape(const hadal::AttentionShape& of, int64_t columns, LaunchDevice& device)
      : shape{.heads = of.heads,
              .head_width = static_cast<int32_t>(columns / of.heads),
              .causal = of.causal,
              .group = of.group,
              .rotary = DeviceRotaryOf(of.rotary),
              .reach = of.reach} {
    if (const DeviceTiles& tiles = of.device_tiles; tiles.queries != nullptr) {
      query_tiles = tiles.queries, queries = tiles.query_capacity;
      key_tiles = tiles.keys, keys = tiles.key_capacity;
      return;
    }
    const auto list = [](const ConstTokens& tokens) {
      return std::vector<int32_t>(tokens.data, tokens.data + tokens.size);
    };
    const AttentionTiles tiles = CutIntoTiles(list(of.query_offsets), list(of.key_offsets));
    queries = static_cast<int64_t>(tiles.of_queries.size());
    keys = static_cast<int64_t>(tiles.of_keys.size());
    query_tiles = device.launch_memory().Put(tiles.of_queries.data(), queries);
    key_tiles = device.launch_memory().Put(tiles.of_keys.data(), keys);
  }

  AttentionShape shape;
  DevicePointer<const AttentionTile> query_tiles, key_tiles;
  int64_t queries = 0, keys = 0;
};

// Returns the kernels' view, [heads, rows], of a matrix with one number per row and head, [rows, heads]. REQUIRES:
// dense.
template <typename T>
DeviceMatrix<T> ByHead(const MatrixOf<T>& m) {
  HADAL_CHECK_EQ(m.stride, m.columns);
  return {m.data, m.rows};
}

}  // namespace

void operation::AttentionForward(const Stream& stream, const hadal::AttentionForwardArgs& args) {
  LaunchDevice& device = DeviceOf(stream);
  const TiledShape of(args.shape, args.q.columns, device);
  WithElement(args.q.storage, [&]<typename T>(T) {
    cuda::AttentionForward<T>(device.handle(), {.shape = of.shape,
                                                .query_tiles = of.query_tiles,
                                                .query_tile_capacity = of.queries,
                                                .q = ViewOf<T>(args.q),
                                                .k = ViewOf<T>(args.k),
                                                .v = ViewOf<T>(args.v),
                                                .dropout = DeviceDropoutOf(OnDevice(args.dropout, device)),
                                                .output = ViewOf<T>(args.output),
                                                .log_sum_exp = ByHead(args.log_sum_exp)});
  });
}

void operation::AttentionBackward(const Stream& stream, const hadal::AttentionBackwardArgs& args) {
  LaunchDevice& device = DeviceOf(stream);
  const TiledShape of(args.shape, args.q.columns, device);
  WithElement(args.q.storage, [&]<typename T>(T) {
    cuda::AttentionBackward<T>(device.handle(), {.shape = of.shape,
                                                 .query_tiles = of.query_tiles,
                                                 .key_tiles = of.key_tiles,
                                                 .query_tile_capacity = of.queries,
                                                 .key_tile_capacity = of.keys,
                                                 .q = ViewOf<T>(args.q),
                                                 .k = ViewOf<T>(args.k),
                                                 .v = ViewOf<T>(args.v),
                                                 .log_sum_exp = ByHead(args.log_sum_exp),
                                                 .d_output = ViewOf<T>(args.d_output),
                                                 .dropout = DeviceDropoutOf(OnDevice(args.dropout, device)),
                                                 .d_q = ViewOf<T>(args.d_q),
                                                 .d_k = ViewOf<T>(args.d_k),
                                                 .d_v = ViewOf<T>(args.d_v),
                                                 .row_terms = DeviceMatrix<float>(args.scratch.data, args.q.rows)});
  });
}

}  // namespace hadal::cuda
