// A lane's tables as a device reads them: a block of its memory a lane, filled before each group and each step, so that
// what was launched for one of them can be launched again for the next (graph_cache.h).
//
//   a step   tokens, positions and cache rows [R]; paths [R, longest path] and memories [R, longest source], and the
//            lengths of both [R]
//   a group  the cache rows of its sources' rows [source rows]
// R and the source rows are the capacity's: a table lies at the same place every time. The host keeps as much pinned
// memory. Thread safety: one thread.
#pragma once

#include <cstdint>

#include "layers/incremental_sublayer.h"
#include "pipeline/decode/decode_capacity.h"
#include "runtime/arena.h"
#include "runtime/stream.h"

namespace hadal {

class DecodeBlocks {
 public:
  DecodeBlocks(const DecodeCapacity& capacity, ArenaLayout& layout);
  void Bind(const Arena& arena);

  // Puts the tables of a lane there, by one copy in the order of the stream, and says in them where they are.
  // REQUIRES: they are of the capacity's size; the device has been waited for since the lane's last of the kind.
  void FillStep(const Stream& stream, int32_t lane, IncrementalRows& rows) const;
  void FillGroup(const Stream& stream, int32_t lane, CacheRows& memory) const;

 private:
  int64_t rows_, source_rows_, step_words_, group_words_;
  ArenaSlice device_slice_, host_slice_;
  int32_t *on_device_ = nullptr, *on_host_ = nullptr;  // [lanes, step | group]
};

}  // namespace hadal
