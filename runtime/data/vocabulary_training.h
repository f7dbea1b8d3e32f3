// Trains a SentencePiece vocabulary with hadal's special ids (`<s>` 0, `<pad>` 1, `</s>` 2, `<unk>` 3).
//
// Deterministic: one thread, sentences in the order given, no shuffling: the same sentences give the same bytes. (The
// unigram trainer sums expectations per thread, so its result would depend on their number.) Sources: Sennrich, Haddow,
// Birch 2016 (BPE); Kudo 2018 (unigram); the trainer is Debian's libsentencepiece. Thread safety: SentencePiece's log
// level is process-wide; one training at a time. Blocking: seconds to minutes.
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
  int32_t size = 8000;              // ids, the four special ones included
  double character_coverage = 1.0;  // characters rarer than the rest become <unk>; 0.9995 for Chinese or Japanese
  std::string normalization = "nmt_nfkc";  // SentencePiece's rule: nmt_nfkc, nfkc, nmt_nfkc_cf, nfkc_cf, identity
};

// What can be known without text. Errors: InvalidArgument for a size that leaves no room beside the special ids, a coverage outside (0, 1],
// an unknown rule.
absl::Status CheckVocabularyTraining(const VocabularyTraining& options);

// Errors: CheckVocabularyTraining's; InvalidArgument when `sentences` has no text; when size is larger than the text can give, naming the
// largest possible, or smaller than its characters need, naming the smallest.
absl::StatusOr<Vocabulary> TrainVocabulary(const VocabularyTraining& options,
                                           const std::vector<std::string>& sentences);

}  // namespace hadal
