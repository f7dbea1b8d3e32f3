// Encodes lines to token ids in batches of a few thousand lines, with several threads. Segmentation takes nearly all
// the time of `hadal prepare`.
//
// Lines are returned in the order they were added; the result does not depend on the number of threads.
// Thread safety: one thread; it takes part in the work. Memory: kMostLines lines or kMostBytes bytes of text, and their
// ids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/corpus.h"
#include "runtime/data/vocabulary.h"
#include "tools/corpus/parallel_text.h"

namespace hadal {

// A pair of lines as tokens.
struct EncodedLine {
  int64_t number = 0;  // line number, from 1
  Sample sample;
};

class LineEncoder {
 public:
  static constexpr size_t kMostLines = 8192;
  static constexpr size_t kMostBytes = size_t{4} << 20;

  // `source`: null for plain text. Both must outlive the encoder. `threads`: 0 for one per CPU.
  LineEncoder(const Vocabulary* source, const Vocabulary& target, int threads);

  // Copies a pair of lines; `corpus_id`: the index of their pair of files.
  void Add(int32_t corpus_id, const ParallelLine& line);
  bool full() const { return size_ >= kMostLines || bytes_ >= kMostBytes; }
  // Encodes the lines added since the last call. The result is valid until the next Add. Blocking: computes.
  std::span<EncodedLine> Encode();

 private:
  struct Text {
    std::string source, target;
  };

  const Vocabulary* source_;
  const Vocabulary& target_;
  const int threads_;
  // [size_] in use; further entries keep their memory for reuse.
  std::vector<Text> texts_;
  std::vector<EncodedLine> lines_;
  size_t size_ = 0, bytes_ = 0;
};

}  // namespace hadal
