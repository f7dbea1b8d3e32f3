// Trains a SentencePiece vocabulary with hadal's special ids (`<s>` 0, `<pad>` 1, `</s>` 2, `<unk>` 3).
//
// Deterministic: one thread, sentences in the order given, no shuffling; so the same sentences give the same bytes.
// (The unigram trainer sums expectations per thread, so its result would depend on the number of threads.)
// Sources: Sennrich, Haddow, Birch 2016 (BPE); Kudo 2018 (unigram); the trainer is Debian's libsentencepiece.
// Thread safety: SentencePiece's log level is process-wide; one training at a time. Blocking: seconds to minutes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/data/vocabulary.h"

namespace hadal {

enum class PieceAlgorithm { kBpe, kUnigram };

struct VocabularyTraining {
  PieceAlgorithm algorithm = PieceAlgorithm::kBpe;
  int32_t size = 8000;  // ids, the four special ones included
  // share of the text's characters to cover; the rarest become <unk>; 0.9995 for Chinese or Japanese
  double character_coverage = 1.0;
  std::string normalization = "nmt_nfkc";  // SentencePiece's rule: nmt_nfkc, nfkc, nmt_nfkc_cf, nfkc_cf, identity
};

// Checks what can be known without text. Errors: InvalidArgument for a size that leaves no room besides the special
// ids, a coverage outside (0, 1], an unknown rule.
absl::Status CheckVocabularyTraining(const VocabularyTraining& options);

// Errors: those of CheckVocabularyTraining. InvalidArgument when `sentences` has no text, and when size is larger than
// the text allows (names the largest possible) or smaller than its characters need (names the smallest).
absl::StatusOr<Vocabulary> TrainVocabulary(const VocabularyTraining& options,
                                           const std::vector<std::string>& sentences);

}  // namespace hadal
