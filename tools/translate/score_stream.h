// `hadal score --block N [--context C]`: the probability of a text as one stream under a language model.
//
// The stream is the tokens of all lines, each line followed by </s>. It is cut into blocks of N tokens, of which the
// first C repeat the end of the block before and are context only. So each block has N − C new tokens, and each token
// of the stream is scored once. A block's first token is predicted from the token before the block (</s> at the
// stream's beginning). This is fairseq's eval_lm with --sample-break-mode none, --tokens-per-sample N and
// --context-window C; as there, </s> counts as a token.
// Writes one line per block: the sum of the natural-log probabilities of its new tokens, and their number, separated by
// a tab. The summary has the perplexity per token, and per word (score.h).
#pragma once

#include <iosfwd>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/comm/communicator.h"
#include "runtime/stream.h"
#include "tools/translate/score.h"

namespace hadal {

// Number of words between white space (runtime/data/unicode_text.h).
int64_t CountWords(absl::string_view line);

// As RunScore. Errors also: InvalidArgument for a model that translates, a block that is longer than the model's
// positions or a batch, and a context that leaves no new token.
absl::Status RunScoreStream(const ScoreOptions& options, Communicator& communicator, const Stream& stream,
                            std::ostream& out, std::ostream& log);

}  // namespace hadal
