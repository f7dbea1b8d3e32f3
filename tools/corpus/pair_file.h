// Reads files in TMX or JSON Lines, which hold both sides of parallel text. A file's first bytes determine its format.
//
//   TMX (1.1 to 1.4b)  a translation unit is a pair: the <seg> of one variant (<tuv xml:lang="…">, or lang) in each
//                      language. Inline codes (bpt, ept, it, ph, ut, with sub) are left out with their content, hi only
//                      as a tag. The encoding is the file's.
//   JSON Lines         an object a line: {"translation": {"de": "…", "en": "…"}} as the datasets of Hugging Face have
//                      it, {"de": "…", "en": "…"}, or keys "source" and "target", "src" and "tgt".
// Languages are compared without case; if there is no "en", "en" finds the first of "en-US", "en-GB", …. A side that is
// missing is empty. Each run of white space, line ends included, becomes one space, because a side is one line.
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
  // Returns null if the file is in neither format. `reversed`: JSON's keys "source" and "src" name the target side, and
  // "target" and "tgt" the source side. Errors: those of OpenText.
  static absl::StatusOr<std::unique_ptr<PairFile>> Open(const std::string& path, const Direction& direction,
                                                        bool reversed);
  virtual ~PairFile() = default;

  // Reads the next pair; returns false at the end. If it is not UTF-8 or broken JSON, sets `invalid` to a description
  // (else "")
  // and the sides to "". Blocking.
  // Errors: InvalidArgument, with the place in the file, if its format is violated, and at the end of a file in which
  // no pair had both languages.
  virtual absl::StatusOr<bool> Next(std::string& source, std::string& target, std::string& invalid) = 0;
};

}  // namespace hadal
