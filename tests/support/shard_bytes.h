// The whole file of a shard.
#pragma once

#include <string>
#include <string_view>

#include "runtime/data/corpus_shard.h"

namespace hadal {

inline std::string BytesOf(ShardBuilder& builder) {
  std::string bytes;
  for (const std::string_view piece : builder.Pieces()) bytes += piece;
  return bytes;
}

}  // namespace hadal
