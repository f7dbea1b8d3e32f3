// DecodeBlocks stores the index tables of decoding in device memory, one block for each lane (decode_driver.h), filled
// before each group of sentences and each step. Blocks have fixed addresses, so one recorded graph serves all groups or
// steps (graph_cache.h).
//
//   a step   tokens, positions and cache rows [R]; paths [R, longest path] and memories [R, longest source], and the
//            lengths of both [R]
//   a group  the cache rows of its sources' rows [source rows]
// R and the source rows are those of DecodeCapacity. Pinned host memory of the same size is the source of the copies.
// Thread safety: one thread.
#pragma once

#include <cstdint>

#include "layers/incremental_sublayer.h"
#include "pipeline/layout/decode_capacity.h"
#include "runtime/arena.h"
#include "runtime/stream.h"

namespace hadal {

class DecodeBlocks {
 public:
  DecodeBlocks(const DecodeCapacity& capacity, ArenaLayout& layout);
  void Bind(const Arena& arena);

  // Copies the tables of a lane to its block, in one copy in the stream's order, and stores their addresses in the
  // argument.
  // REQUIRES: the tables have the capacity's size; the host has waited for the device since the lane's last call of the
  // same function.
  void FillStep(const Stream& stream, int32_t lane, IncrementalRows& rows) const;
  void FillGroup(const Stream& stream, int32_t lane, CacheRows& encoder_output) const;

 private:
  int64_t rows_, source_rows_, step_words_, group_words_;
  ArenaSlice device_slice_, host_slice_;
  int32_t *on_device_ = nullptr, *on_host_ = nullptr;  // [lanes, step | group]
};

}  // namespace hadal
