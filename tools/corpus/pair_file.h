// Reads files that hold both sides of parallel text in a format of their own: TMX and JSON Lines, told by their first
// bytes.
//
//   TMX (1.1 to 1.4b)  a translation unit is a pair: the <seg> of one variant (<tuv xml:lang="…">, or lang) in each
//                      language. Inline codes (bpt, ept, it, ph, ut, with sub) are left out with their content, hi only
//                      as a tag. The encoding is the file's.
//   JSON Lines         an object a line: {"translation": {"de": "…", "en": "…"}} as the datasets of Hugging Face have
//                      it, {"de": "…", "en": "…"}, or keys "source" and "target", "src" and "tgt".
// Languages are compared without case; "en" also finds "en-US", the first of several, unless there is "en" itself. A
// side that is missing is empty. Runs of white space are one space, since a pair is a line of each side.
// Thread safety: one thread. Memory: a unit, at most kMostLineBytes, and 64 KiB.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/data/language_tags.h"

namespace hadal {

class PairFile {
 public:
  // Returns null if the file is in neither format. `reversed`: the sides of keys without languages are exchanged.
  // Errors: those of OpenText.
  static absl::StatusOr<std::unique_ptr<PairFile>> Open(const std::string& path, const Direction& direction,
                                                        bool reversed);
  virtual ~PairFile() = default;

  // Reads the next pair; returns false at the end. Sets `invalid` to what is not UTF-8, if any, and then leaves the
  // sides empty. Blocking.
  // Errors: InvalidArgument, with the place, for what is not of the format, and at the end of a file in which no pair
  // had both languages.
  virtual absl::StatusOr<bool> Next(std::string& source, std::string& target, std::string& invalid) = 0;
};

}  // namespace hadal
