#include "kernels/cached_attention.h"

#include "kernels/cpu/operations.h"
#include "kernels/device_kernels.h"
#include "runtime/check.h"

namespace hadal {

void CachedAttention(const Stream& stream, const CachedAttentionArgs& args) {
  const int64_t rows = args.q.rows;
  HADAL_CHECK_GE(args.heads, 1);
  HADAL_CHECK_EQ(args.q.columns % args.heads, 0);
  HADAL_CHECK_EQ(args.heads % args.group, 0);
  HADAL_CHECK_EQ(args.cache.columns, 2 * args.q.columns / args.group);
  HADAL_CHECK(args.cache.storage == args.q.storage && args.output.storage == args.q.storage);
  HADAL_CHECK_EQ(args.output.rows, rows);
  HADAL_CHECK_EQ(args.output.columns, args.q.columns);
  HADAL_CHECK_EQ(args.lengths.size, rows);
  HADAL_CHECK_GE(args.index.size, rows * args.index_stride);
  HADAL_CHECK_GE(args.reach, 0);
  for (int64_t i = 0; i < rows; ++i) {
    HADAL_CHECK_GE(args.lengths[i], 1);
    HADAL_CHECK_LE(args.lengths[i], args.index_stride);
    if (args.rotary.active()) HADAL_CHECK_LE(args.lengths[i], args.rotary.table.rows);
    for (int64_t p = FirstPosition(args.lengths[i], args.reach); p < args.lengths[i]; ++p) {
      HADAL_CHECK_GE(args.index[i * args.index_stride + p], 0);
      HADAL_CHECK_LT(args.index[i * args.index_stride + p], args.cache.rows);
    }
  }
  if (stream.device() != nullptr) return stream.device()->kernels().cached_attention(stream, args);
  HADAL_CHECK_GE(args.scratch.size, CachedAttentionScratch(stream, args.index_stride, args.q.columns / args.heads));
  cpu::CachedAttention(stream, args);
}

}  // namespace hadal
