// Counts the tokens of a text that a model's dictionary lacks. A dictionary has pieces, and text that is not cut into
// them says nothing to the model.
// Thread safety: one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/data/packed_batch.h"
#include "runtime/data/vocabulary.h"
#include "tools/output/human_units.h"

namespace hadal {

class UnknownTokens {
 public:
  // `tokens`: of a text in this vocabulary.
  void Count(const Vocabulary& vocabulary, std::span<const int32_t> tokens) {
    if (vocabulary.kind() != VocabularyKind::kDictionary) return;
    tokens_ += std::ssize(tokens);
    unknown_ += std::ranges::count(tokens, kUnknownToken);
  }
  // Returns a warning if more than half of the tokens are unknown, else "". `of`: what was counted, "lines 3 to 4".
  std::string Warning(const std::string& of) const {
    if (2 * unknown_ <= tokens_) return "";
    return absl::StrCat("warning: ", HumanCount(unknown_), " of ", HumanCount(tokens_), " tokens of ", of,
                        " are not in the model's dictionary and are read as <unk>. Encode the text first with the "
                        "model's own SentencePiece model or BPE codes");
  }

 private:
  int64_t tokens_ = 0, unknown_ = 0;
};

}  // namespace hadal
