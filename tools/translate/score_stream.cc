#include "tools/translate/score.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <ostream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "pipeline/pair_scorer.h"
#include "runtime/comm/collectives.h"
#include "runtime/data/unicode_text.h"
#include "runtime/status_macros.h"
#include "tools/corpus/parallel_text.h"
#include "tools/corpus/text_codec.h"
#include "tools/corpus/text_lines.h"
#include "tools/output/human_units.h"
#include "tools/translate/translation_output.h"

namespace hadal {
namespace {

// Rank 0: the blocks of a text, in order.
class BlockReader {
 public:
  static absl::StatusOr<BlockReader> Open(const ScoreOptions& options, const ModelCheckpoint& checkpoint) {
    HADAL_ASSIGN_OR_RETURN(ParallelReader text, ParallelReader::Open(PlainTarget(options)));
    HADAL_ASSIGN_OR_RETURN(TextCodec codec, TextCodec::Open(checkpoint.target_vocabulary(),
                                                            options.ids ? CodecInput::kIds : CodecInput::kText));
    return BlockReader(options, FormOf(checkpoint.plan().options), std::move(codec), std::move(text));
  }

  // The next block: empty at the end.
  absl::StatusOr<TextBlock> Next() {
    const int64_t fresh = options_->block - options_->context;
    while (!ended_ && std::ssize(stream_) - scored_ < fresh) HADAL_RETURN_IF_ERROR(ReadLine());
    const int64_t count = std::min(fresh, std::ssize(stream_) - scored_);
    if (count == 0) return TextBlock();
    TextBlock block{.context = std::min(options_->context, scored_ - 1)};
    const auto first = stream_.begin() + scored_ - block.context - 1;
    block.tokens.assign(first, stream_.begin() + scored_ + count);
    scored_ += count;
    // What later blocks read stays; the rest goes when it is more than half, so that a long line is moved few times.
    const int64_t passed = std::max<int64_t>(scored_ - options_->context - 1, 0);
    if (2 * passed <= std::ssize(stream_)) return block;
    stream_.erase(stream_.begin(), stream_.begin() + passed);
    scored_ -= passed;
    return block;
  }
  int64_t words() const { return words_; }  // of the lines so far, with their ends

 private:
  BlockReader(const ScoreOptions& options, const TextForm& form, TextCodec codec, ParallelReader text)
      : options_(&options),
        form_(form),
        codec_(std::move(codec)),
        text_(std::move(text)),
        stream_(1, form.start_token) {}

  absl::Status ReadLine() {
    ParallelLine line;
    HADAL_ASSIGN_OR_RETURN(const bool more, text_.Next(line));
    ended_ = !more;
    if (!more) return absl::OkStatus();
    HADAL_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, codec_.Encode(line, options_->target));
    if (line.has_ids) RemoveEnds(form_, tokens);
    if (words_ > 0 && form_.start_token != form_.end_token) stream_.push_back(form_.start_token);
    stream_.insert(stream_.end(), tokens.begin(), tokens.end());
    stream_.push_back(form_.end_token);
    words_ += CountWords(line.target) + 1;
    return absl::OkStatus();
  }

  const ScoreOptions* options_;
  TextForm form_;
  TextCodec codec_;
  ParallelReader text_;
  std::vector<int32_t> stream_;  // what is still read; in front of the text stands the start token
  int64_t scored_ = 1;           // tokens of stream_
  int64_t words_ = 0;
  bool ended_ = false;
};

absl::Status CheckBlock(const ScoreOptions& options, const ModelCheckpoint& checkpoint, int64_t longest) {
  if (checkpoint.plan().options.has_encoder() || !options.source.empty() || !options.direction.empty()) {
    return absl::InvalidArgumentError("--block scores the text of a language model, without --source and --direction");
  }
  if (options.block > longest) {
    return absl::InvalidArgumentError(absl::StrCat("--block ", options.block, " is more than ", longest,
                                                   ", the limit of the model (max_positions) and of --batch-tokens"));
  }
  if (options.context < options.block) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--context ", options.context, " leaves no new token in a --block of ", options.block));
}

class StreamScoring {
 public:
  StreamScoring(const ScoreOptions& options, Communicator& communicator, std::ostream& out, std::ostream& log)
      : options_(options),
        is_main_(communicator.rank() == 0),
        collectives_(communicator, absl::Seconds(options.wait_timeout_seconds)),
        standard_output_(out),
        log_(log) {}

  absl::Status Run(Communicator& communicator, const Stream& stream) {
    absl::StatusOr<ModelCheckpoint> checkpoint = ModelCheckpoint::Open(options_.checkpoint);
    HADAL_RETURN_IF_ERROR(collectives_.AllOk(checkpoint.status(), "opening the checkpoint"));
    HADAL_ASSIGN_OR_RETURN(const std::unique_ptr<PairScorer> scorer,
                           PairScorer::Create(*checkpoint, options_.batch_tokens, stream, communicator,
                                              absl::Seconds(options_.wait_timeout_seconds)));
    HADAL_RETURN_IF_ERROR(collectives_.AllOk(OpenFiles(*checkpoint, *scorer), "opening files"));
    for (bool more = true; more;) HADAL_RETURN_IF_ERROR(ScoreBlocks(*scorer, more));
    HADAL_RETURN_IF_ERROR(collectives_.AllOk(file_.Finish(), "closing the output"));
    if (is_main_) Summarize();
    return absl::OkStatus();
  }

 private:
  std::ostream& out() { return options_.output.empty() ? standard_output_ : file_.stream(); }

  absl::Status OpenFiles(const ModelCheckpoint& checkpoint, const PairScorer& scorer) {
    HADAL_RETURN_IF_ERROR(CheckBlock(options_, checkpoint, scorer.longest_tokens() + 1));
    if (!is_main_) return absl::OkStatus();
    HADAL_ASSIGN_OR_RETURN(BlockReader reader, BlockReader::Open(options_, checkpoint));
    reader_.emplace(std::move(reader));
    return options_.output.empty() ? absl::OkStatus()
                                   : file_.Open(options_.output, {options_.target}, options_.overwrite);
  }

  // Rank 0: the next blocks, each with its context behind it.
  absl::Status Read(TokenLists& lists) {
    const int64_t most_blocks = std::max<int64_t>(1, 16 * options_.batch_tokens / options_.block);
    while (std::ssize(lists) < most_blocks) {
      HADAL_ASSIGN_OR_RETURN(TextBlock block, reader_->Next());
      if (block.tokens.empty()) break;
      block.tokens.push_back(static_cast<int32_t>(block.context));
      lists.push_back(std::move(block.tokens));
    }
    return absl::OkStatus();
  }

  absl::Status ScoreBlocks(PairScorer& scorer, bool& more) {
    TokenLists lists;
    HADAL_RETURN_IF_ERROR(collectives_.AllOk(is_main_ ? Read(lists) : absl::OkStatus(), "reading text"));
    HADAL_ASSIGN_OR_RETURN(more, collectives_.AnyRank(!lists.empty(), "reading text"));
    if (!more) return absl::OkStatus();
    std::string bytes = is_main_ ? TokenListsToBytes(lists) : "";
    HADAL_RETURN_IF_ERROR(collectives_.Broadcast(bytes, 0, "tokens"));
    HADAL_ASSIGN_OR_RETURN(lists, TokenListsFromBytes(bytes));
    std::vector<TextBlock> blocks;
    for (std::vector<int32_t>& list : lists) {
      const int64_t context = list.back();
      list.pop_back();
      blocks.push_back({.tokens = std::move(list), .context = context});
    }
    HADAL_ASSIGN_OR_RETURN(const std::vector<PairScore> scores, scorer.ScoreBlocks(blocks));
    return collectives_.AllOk(is_main_ ? Write(scores) : absl::OkStatus(), "writing scores");
  }

  absl::Status Write(const std::vector<PairScore>& scores) {
    for (const PairScore& score : scores) {
      out() << absl::StrFormat("%.6f\t%d\n", score.log_probability, score.tokens);
      total_.log_probability += score.log_probability;
      total_.tokens += score.tokens;
      ++blocks_;
    }
    out().flush();
    return out() ? absl::OkStatus() : absl::ResourceExhaustedError("writing scores failed; is the disk full?");
  }

  void Summarize() {
    if (blocks_ == 0) {
      log_ << "nothing was scored: " << options_.target << " is empty\n";
      return;
    }
    const double nll = -total_.log_probability / static_cast<double>(total_.tokens);
    const double nll_of_word = -total_.log_probability / static_cast<double>(reader_->words());
    log_ << absl::StrFormat(
        "scored %s blocks of %s tokens (%s of context), %s new tokens: nll %.4f, perplexity %s per token; %s words: "
        "perplexity %s per word\n",
        HumanCount(blocks_), HumanCount(options_.block), HumanCount(options_.context), HumanCount(total_.tokens), nll,
        HumanValue(std::exp(nll), 4), HumanCount(reader_->words()), HumanValue(std::exp(nll_of_word), 4));
  }

  const ScoreOptions& options_;
  bool is_main_;
  Collectives collectives_;
  std::ostream& standard_output_;
  std::ostream& log_;
  OutputFile file_;
  std::optional<BlockReader> reader_;  // rank 0's
  PairScore total_;
  int64_t blocks_ = 0;
};

}  // namespace

int64_t CountWords(absl::string_view line) { return std::ssize(SplitAtSpace({line.data(), line.size()})); }

absl::Status RunScoreStream(const ScoreOptions& options, Communicator& communicator, const Stream& stream,
                            std::ostream& out, std::ostream& log) {
  return StreamScoring(options, communicator, out, log).Run(communicator, stream);
}

}  // namespace hadal
