// Makes a vocabulary (vocabulary.h) from text. kBpe and kUnigram train a SentencePiece model with hadal's special ids
// (`<s>` 0, `<pad>` 1, `</s>` 2, `<unk>` 3). kWord makes a dictionary of the words between spaces, as
// fairseq-preprocess does: most frequent first, words of equal count in the order of their bytes. It leaves out words
// that spell a special token.
//
// Deterministic: one thread, sentences in the given order, no shuffling; the same sentences give the same bytes. (The
// unigram trainer sums expectations per thread, so its result would depend on the number of threads.)
// Sources: Sennrich, Haddow, Birch 2016 (BPE); Kudo 2018 (unigram); the trainer is Debian's libsentencepiece.
// Thread safety: one training at a time, because SentencePiece's log level is process-wide. Blocking: seconds to
// minutes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/data/vocabulary.h"

namespace hadal {

enum class PieceAlgorithm { kBpe, kUnigram, kWord };

struct VocabularyTraining {
  PieceAlgorithm algorithm = PieceAlgorithm::kBpe;
  int32_t size = 8000;      // ids, including the four special ones; kWord: the most ids, 0: all words
  int64_t least_count = 1;  // kWord: rarer words become <unk>
  // fraction of the text's characters to cover, at least 0.98; the rarest become <unk>; 0.9995 for Chinese or Japanese
  double character_coverage = 1.0;
  std::string normalization = "nmt_nfkc";  // SentencePiece's rule: nmt_nfkc, nfkc, nmt_nfkc_cf, nfkc_cf, identity
};

// Checks what does not depend on the text. Errors: InvalidArgument for a size that leaves no room besides the special
// ids, a coverage outside (0, 1], or an unknown rule.
absl::Status CheckVocabularyTraining(const VocabularyTraining& options);

// Makes the vocabulary of `sentences`. Errors: those of CheckVocabularyTraining; InvalidArgument if `sentences` has no
// text, or if size is larger than the text allows (the message has the largest possible size) or smaller than its
// characters need (the message has the smallest possible size).
absl::StatusOr<Vocabulary> TrainVocabulary(const VocabularyTraining& options,
                                           const std::vector<std::string>& sentences);

}  // namespace hadal
