// Fills memory of an arena that a program has not written with values that are noticed: NaN in fp32 and bf16, and far
// outside of any table as an index. (Bytes of ones would be the index −1, which is valid in places.)
#pragma once

#include <algorithm>

#include "runtime/arena.h"
#include "runtime/stream.h"

namespace hadal::testing {

inline constexpr uint32_t kArenaPoison = 0x7FC07FC0;
inline constexpr int64_t kPoisonedGapBytes = 256;

inline void PoisonBytes(const Stream& stream, bool on_host, std::span<std::byte> memory) {
  const std::vector<uint32_t> poison(memory.size() / sizeof(uint32_t), kArenaPoison);
  const Stream to = on_host ? Stream::Cpu(1) : stream;
  to.FromHost(memory.data(), poison.data(), std::ssize(memory));
}

// All scratch, gaps included.
inline void PoisonScratch(const Stream& stream, const Arena& arena) {
  for (const bool on_host : {false, true}) PoisonBytes(stream, on_host, arena.scratch(on_host));
}

inline void PoisonLastingGaps(const Stream& stream, const Arena& arena, const ArenaLayout& layout) {
  for (const ArenaLayout::Gap& gap : layout.gaps()) {
    if (!gap.slice.section.lasting) continue;
    PoisonBytes(stream, gap.slice.section.on_host,
                {arena.Get<std::byte>(gap.slice), static_cast<size_t>(gap.slice.bytes)});
  }
}

// Returns the number of gaps that were written to: lasting ones, and those in the scratch of `program`, which ran last.
inline int WrittenGaps(const Stream& stream, const Arena& arena, const ArenaLayout& layout, int program) {
  int written = 0;
  for (const ArenaLayout::Gap& gap : layout.gaps()) {
    if (!gap.slice.section.lasting && gap.program != program) continue;
    std::vector<uint32_t> bytes(gap.slice.bytes / sizeof(uint32_t));
    const Stream from = gap.slice.section.on_host ? Stream::Cpu(1) : stream;
    from.ToHost(bytes.data(), arena.Get<std::byte>(gap.slice), gap.slice.bytes);
    written += std::ranges::any_of(bytes, [](uint32_t word) { return word != kArenaPoison; });
  }
  return written;
}

}  // namespace hadal::testing
