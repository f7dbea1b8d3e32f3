// Finds the pairs of lines, and the sides, that a direction's text has had before.
//
// Text is compared by 64-bit hashes. Of n pairs, about n²/2^65 are taken for repeated that are not: 3e-4 of a pair for
// 100 million.
// Memory: three hashes a pair (one for plain text), at most 75 bytes with the free places of the hash sets. The sets of
// a direction are freed after its last text.
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "tools/corpus/parallel_text.h"

namespace hadal {

using TextHashes = absl::flat_hash_set<uint64_t>;

// The hash of both sides and the direction.
uint64_t HashOfPair(const Direction& direction, const ParallelLine& line);

class RepeatedText {
 public:
  // What of a pair an earlier line of its direction, in this text or an earlier one, has had.
  struct Repeated {
    bool pair = false;
    bool source = false;  // false for plain text, as is `target`
    bool target = false;
  };

  explicit RepeatedText(const std::vector<TextPair>& texts);

  // Adds a line of text `text`, an index; `hash`: HashOfPair. REQUIRES: texts in ascending order.
  Repeated Add(size_t text, const ParallelLine& line, uint64_t hash);

 private:
  struct Seen {
    TextHashes pairs, sources, targets;
  };
  struct Text {
    std::string direction;
    bool plain = false;
    bool last = false;  // of its direction
  };

  std::vector<Text> texts_;
  size_t text_ = 0;                   // of the last line
  std::map<std::string, Seen> seen_;  // by direction
};

}  // namespace hadal
