// Lines into token ids, some thousand at a time and by several threads: segmentation is nearly all of the time that
// `hadal prepare` takes.
//
// Lines come back in the order they went in; nothing of the result depends on the threads.
// Thread safety: one thread, which lends itself to the work. Memory: kMostLines lines or kMostBytes bytes of text, and
// their ids.
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
  int64_t number = 0;  // of the line, from 1
  Sample sample;
};

class LineEncoder {
 public:
  static constexpr size_t kMostLines = 8192;
  static constexpr size_t kMostBytes = size_t{4} << 20;

  // `source`: null for plain text. Both must outlive the encoder. `threads`: 0 for one a CPU.
  LineEncoder(const Vocabulary* source, const Vocabulary& target, int threads);

  // Copies a pair of lines of the pair of files `corpus_id`.
  void Add(int32_t corpus_id, const ParallelLine& line);
  bool full() const { return size_ >= kMostLines || bytes_ >= kMostBytes; }
  // What was added since the last call, encoded. Valid until the next Add. Blocking: computes.
  std::span<const EncodedLine> Encode();

 private:
  struct Text {
    std::string source, target;
  };

  const Vocabulary* source_;
  const Vocabulary& target_;
  const int threads_;
  // [size_] in use; those behind keep their memory for later.
  std::vector<Text> texts_;
  std::vector<EncodedLine> lines_;
  size_t size_ = 0, bytes_ = 0;
};

}  // namespace hadal
