// The text of `hadal score --block N [--context C]`, one stream under a language model.
//
// The stream is the tokens of all lines or documents, each followed by </s> (of a tokenizer.json by its end token, and
// preceded by its start token). It is cut into blocks of N tokens, of which the first C repeat the end of the block
// before and are context only. The first block has no block before it, and N − C tokens. So each
// block has N − C new tokens, and each token of the stream is scored once. A
// block's first token is predicted from the token before the block (</s> at the stream's beginning). With a model that
// was trained with a document mask, attention ends at a document's borders. Else this is fairseq's eval_lm
// with --sample-break-mode none, --tokens-per-sample N and --context-window C; as there, </s> counts as a token.
// Threads: one. Memory: a line, and two blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "pipeline/pair_scorer.h"
#include "runtime/data/packed_batch.h"

namespace hadal {

// Cuts a stream of text into blocks.
class StreamBlocks {
 public:
  // Reads the ids of the next line, without the tokens that start and end it; returns false at the end.
  using NextLine = std::function<absl::StatusOr<bool>(std::vector<int32_t>& ids)>;
  // REQUIRES: 0 ≤ context < block.
  StreamBlocks(const TextForm& form, int64_t block, int64_t context, NextLine next_line)
      : form_(form), block_(block), context_(context), next_line_(std::move(next_line)), stream_(1, form.start_token) {}

  // The next block: empty at the end. Errors: those of next_line.
  absl::StatusOr<TextBlock> Next();

 private:
  absl::Status ReadLine();

  TextForm form_;
  int64_t block_, context_;
  NextLine next_line_;
  std::vector<int32_t> stream_;  // what is still read; in front of the text stands the start token
  int64_t scored_ = 1;           // tokens of stream_
  bool begun_ = false, ended_ = false;
};

}  // namespace hadal
