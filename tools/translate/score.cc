#include "tools/translate/score.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "pipeline/pair_scorer.h"
#include "runtime/comm/collectives.h"
#include "runtime/data/corpus.h"
#include "runtime/data/unicode_text.h"
#include "runtime/status_macros.h"
#include "tools/checkpoint/checkpoint_command.h"
#include "tools/corpus/feature_reader.h"
#include "tools/corpus/parallel_text.h"
#include "tools/corpus/text_codec.h"
#include "tools/corpus/text_lines.h"
#include "tools/output/human_units.h"
#include "tools/output/work_progress.h"
#include "tools/translate/leading_tokens.h"
#include "tools/translate/translation_output.h"

namespace hadal {
namespace {

// Cuts the text of `hadal score --block N [--context C]`, one stream under a language model, into blocks.
//
// The stream is the tokens of all lines or documents, each followed by </s> (of a tokenizer.json by its end token, and
// preceded by its start token). It is cut into blocks of N tokens, of which the first C repeat the end of the block
// before and are context only. The first block has no block before it, and N − C tokens. So each
// block has N − C new tokens, and each token of the stream is scored once. A
// block's first token is predicted from the token before the block (</s> at the stream's beginning). With a model that
// was trained with a document mask, attention ends at a document's borders. Else this is fairseq's eval_lm
// with --sample-break-mode none, --tokens-per-sample N and --context-window C; as there, </s> counts as a token.
class StreamBlocks {
 public:
  // Reads the ids of the next line, without the tokens that start and end it; returns false at the end.
  using NextLine = std::function<absl::StatusOr<bool>(std::vector<int32_t>& ids)>;
  // REQUIRES: 0 ≤ context < block.
  StreamBlocks(const TextForm& form, int64_t block, int64_t context, NextLine next_line)
      : form_(form), block_(block), context_(context), next_line_(std::move(next_line)), stream_(1, form.start_token) {}

  // The next block: empty at the end. Errors: those of next_line.
  absl::StatusOr<TextBlock> Next() {
    const int64_t fresh = block_ - context_;
    while (!ended_ && std::ssize(stream_) - scored_ < fresh) HADAL_RETURN_IF_ERROR(ReadLine());
    const int64_t count = std::min(fresh, std::ssize(stream_) - scored_);
    if (count == 0) return TextBlock();
    TextBlock block{.context = std::min(context_, scored_ - 1)};
    const auto first = stream_.begin() + scored_ - block.context - 1;
    block.tokens.assign(first, stream_.begin() + scored_ + count);
    scored_ += count;
    // What later blocks read stays; the rest goes when it is more than half, so that a long line is moved few times.
    const int64_t passed = std::max<int64_t>(scored_ - context_ - 1, 0);
    if (2 * passed <= std::ssize(stream_)) return block;
    stream_.erase(stream_.begin(), stream_.begin() + passed);
    scored_ -= passed;
    return block;
  }

 private:
  absl::Status ReadLine() {
    std::vector<int32_t> tokens;
    HADAL_ASSIGN_OR_RETURN(const bool more, next_line_(tokens));
    ended_ = !more;
    if (!more) return absl::OkStatus();
    if (begun_ && form_.start_token != form_.end_token) stream_.push_back(form_.start_token);
    begun_ = true;
    stream_.insert(stream_.end(), tokens.begin(), tokens.end());
    stream_.push_back(form_.end_token);
    return absl::OkStatus();
  }

  TextForm form_;
  int64_t block_, context_;
  NextLine next_line_;
  std::vector<int32_t> stream_;  // what is still read; in front of the text stands the start token
  int64_t scored_ = 1;           // tokens of stream_
  bool begun_ = false, ended_ = false;
};

// Words between white space.
int64_t CountWords(std::string_view line) { return std::ssize(SplitAtSpace(line)); }

std::vector<int32_t> Tagged(const std::vector<int32_t>& tag, std::vector<int32_t> tokens) {
  tokens.insert(tokens.begin(), tag.begin(), tag.end());
  return tokens;
}

class Scoring {
 public:
  Scoring(const ScoreOptions& options, Communicator& communicator, std::ostream& out, std::ostream& log)
      : options_(options),
        is_main_(communicator.rank() == 0),
        collectives_(communicator, absl::Seconds(options.wait_timeout_seconds)),
        log_(log),
        output_(out) {}

  absl::Status Run(Communicator& communicator, const Stream& stream) {
    absl::StatusOr<ModelCheckpoint> checkpoint = ModelCheckpoint::Open(options_.checkpoint);
    HADAL_RETURN_IF_ERROR(collectives_.AllOk(checkpoint.status(), "opening the checkpoint"));
    HADAL_RETURN_IF_ERROR(checkpoint->CheckDecodes());
    has_source_ = checkpoint->plan().options.has_encoder();
    HADAL_RETURN_IF_ERROR(collectives_.AllOk(CheckBlock(), "checking the options"));
    frame_width_ = checkpoint->plan().options.frame_width;
    HADAL_RETURN_IF_ERROR(collectives_.AllOk(FindTags(*checkpoint), "reading the vocabularies"));
    HADAL_RETURN_IF_ERROR(collectives_.AllOk(OpenFeatures(checkpoint->inputs()), "opening features"));
    HADAL_RETURN_IF_ERROR(collectives_.AllOk(is_main_ ? OpenFiles(*checkpoint) : absl::OkStatus(), "opening files"));
    form_ = FormOf(checkpoint->plan().options);
    HADAL_ASSIGN_OR_RETURN(const std::unique_ptr<PairScorer> scorer,
                           PairScorer::Create(*checkpoint, options_.batch_tokens, stream, communicator,
                                              absl::Seconds(options_.wait_timeout_seconds)));
    if (options_.block > scorer->longest_tokens() + 1) {
      return AsCommonError(InvalidArgumentError("--block ", options_.block, " is more than ",
                                                scorer->longest_tokens() + 1,
                                                ", the limit of the model (max_positions) and of --batch-tokens"));
    }
    if (is_main_ && (!options_.output.empty() || isatty(STDOUT_FILENO) == 0)) {
      progress_.emplace("scoring", "bytes", TextBytes(std::vector{options_.source, options_.target}));
    }
    bool more = true;
    while (more) {
      HADAL_RETURN_IF_ERROR(options_.block > 0 ? ScoreBlocks(*checkpoint, *scorer, more)
                                               : ScoreBuffer(*checkpoint, *scorer, more));
    }
    progress_.reset();
    HADAL_RETURN_IF_ERROR(collectives_.AllOk(output_.Finish(), "closing the output"));
    if (is_main_) Summarize();
    return absl::OkStatus();
  }

 private:
  absl::Status CheckBlock() const {
    if (options_.block == 0) return absl::OkStatus();
    if (has_source_ || !options_.source.empty() || !options_.direction.empty()) {
      return InvalidArgumentError("--block scores the text of a language model, without --source and --direction");
    }
    if (options_.context < options_.block) return absl::OkStatus();
    return InvalidArgumentError("--context ", options_.context, " leaves no new token in a --block of ",
                                options_.block);
  }

  absl::Status FindTags(const ModelCheckpoint& checkpoint) {
    if (!options_.direction.empty() && (!has_source_ || frame_width_ > 0)) {
      return InvalidArgumentError("only a model that translates text has a direction; omit --direction");
    }
    HADAL_ASSIGN_OR_RETURN(tags_, FindDirectionTags(checkpoint, options_.tags, options_.direction));
    return absl::OkStatus();
  }

  // Speech: every rank reads the features itself.
  absl::Status OpenFeatures(const InputKind& inputs) {
    if (frame_width_ == 0 || options_.source.empty()) return absl::OkStatus();
    HADAL_ASSIGN_OR_RETURN(features_, FeatureReader::Open(options_.source));
    return CheckFeatureKind(inputs, features_->manifest().inputs(), options_.source);
  }

  // The frames of utterance `number`, from 1. REQUIRES: ascending numbers.
  absl::StatusOr<std::vector<float>> FramesOf(int64_t number) {
    if (number > features_->manifest().utterances) return UnequalCounts(number);
    HADAL_ASSIGN_OR_RETURN(const std::span<const float> frames, features_->Frames(number));
    return std::vector<float>(frames.begin(), frames.end());
  }

  absl::Status UnequalCounts(int64_t lines) const {
    return InvalidArgumentError(options_.source, " has ", features_->manifest().utterances, " utterances, ",
                                options_.target, " has ", lines > features_->manifest().utterances ? "at least " : "",
                                lines, " lines; line n must be the transcript of utterance n");
  }

  absl::Status OpenFiles(const ModelCheckpoint& checkpoint) {
    if (has_source_ && options_.source.empty()) {
      return InvalidArgumentError("the model translates; give --source as well");
    }
    if (!has_source_ && !options_.source.empty()) {
      return InvalidArgumentError("the model is a language model and needs no --source; give only --target");
    }
    HADAL_ASSIGN_OR_RETURN(
        reader_, ParallelReader::Open(has_source_ && !features_ ? TextPair{options_.source, options_.target}
                                                                : TextPair{.target = options_.target,
                                                                           .text_field = options_.text_field,
                                                                           .blank_lines = options_.documents}));
    HADAL_ASSIGN_OR_RETURN(
        codec_, TextCodec::Open(checkpoint.target_vocabulary(), options_.ids ? CodecInput::kIds : CodecInput::kText));
    std::vector<std::string> inputs = features_ ? features_->Files() : std::vector<std::string>();
    inputs.insert(inputs.end(), {options_.source, options_.target});
    return output_.Open(options_.output, inputs, options_.overwrite);
  }

  // Rank 0: the next line, and the ids of its target.
  absl::StatusOr<bool> ReadLine(ParallelLine& line, std::vector<int32_t>& target) {
    HADAL_ASSIGN_OR_RETURN(const bool more, reader_->Next(line));
    if (!more) return false;
    HADAL_ASSIGN_OR_RETURN(target, codec_->Encode(line, options_.target));
    if (line.has_ids) RemoveEnds(form_, target);
    bytes_read_ += static_cast<int64_t>(line.source.size() + line.target.size()) + (has_source_ ? 2 : 1);
    return true;
  }

  // Rank 0: the next pairs, source and target alternating; scored_[i]: whether line i is among them.
  absl::Status Read(const ModelCheckpoint& checkpoint, int64_t longest, TokenLists& lists) {
    ParallelLine line;
    scored_.clear();
    constexpr size_t kMostValues = size_t{1} << 25;  // of frames in a buffer: 128 MiB
    size_t values = 0;
    while (static_cast<int64_t>(scored_.size()) < options_.buffer_pairs && values < kMostValues) {
      std::vector<int32_t> target;
      HADAL_ASSIGN_OR_RETURN(const bool more, ReadLine(line, target));
      if (!more) {
        return features_ && features_->manifest().utterances != line.number - 1 ? UnequalCounts(line.number - 1)
                                                                                : absl::OkStatus();
      }
      std::vector<int32_t> source;
      std::vector<float> frames;
      if (features_) {
        HADAL_ASSIGN_OR_RETURN(frames, FramesOf(line.number));
        source.resize(static_cast<size_t>(SubsampledRows(std::ssize(frames) / frame_width_)),
                      static_cast<int32_t>(line.number));  // the number of the utterance, for the other ranks
      } else if (has_source_) {
        source = Tagged(tags_.source, checkpoint.source_vocabulary().Encode(line.source));
      }
      target = Tagged(tags_.target, std::move(target));
      // An utterance has no </s>, for which `longest` leaves a row.
      const auto tokens = std::max(std::ssize(source) - (features_ ? 1 : 0), std::ssize(target));
      scored_.push_back(tokens <= longest);
      if (tokens > longest) {
        if (options_.over_long == OverLong::kError) {
          const bool model_ends = tokens >= checkpoint.plan().options.max_positions;  // </s> takes one
          return InvalidArgumentError("line ", line.number, " has ", tokens, " tokens, more than ", longest, "; ",
                                      model_ends ? "that is the model's limit (max_positions): split it, or use "
                                                   "--on-long skip"
                                                 : "use --on-long skip or a higher --batch-tokens");
        }
        continue;
      }
      words_ += CountWords(line.target) + 1;  // the end of the line
      if (has_source_ && !features_) unknown_.Count(checkpoint.source_vocabulary(), source);
      unknown_.Count(checkpoint.target_vocabulary(), target);
      values += frames.size();
      if (features_) frames_.push_back(std::move(frames));
      lists.push_back(std::move(source));
      lists.push_back(std::move(target));
    }
    return absl::OkStatus();
  }

  // The other ranks' part of Read.
  absl::Status ReadFrames(const TokenLists& lists) {
    if (!features_ || is_main_) return absl::OkStatus();
    for (size_t i = 0; i + 1 < lists.size(); i += 2) {
      HADAL_ASSIGN_OR_RETURN(std::vector<float> frames, FramesOf(lists[i].front()));
      frames_.push_back(std::move(frames));
    }
    return absl::OkStatus();
  }

  absl::Status ScoreBuffer(const ModelCheckpoint& checkpoint, PairScorer& scorer, bool& more) {
    TokenLists lists;
    frames_.clear();
    const absl::Status read = is_main_ ? Read(checkpoint, scorer.longest_tokens(), lists) : absl::OkStatus();
    HADAL_RETURN_IF_ERROR(collectives_.AllOk(read, "reading text"));
    HADAL_ASSIGN_OR_RETURN(more, collectives_.AnyRank(!scored_.empty(), "reading text"));
    if (!more) return absl::OkStatus();
    HADAL_RETURN_IF_ERROR(Share(lists));
    HADAL_RETURN_IF_ERROR(collectives_.AllOk(ReadFrames(lists), "reading features"));
    std::vector<SampleView> pairs;
    for (size_t i = 0; i + 1 < lists.size(); i += 2) {
      SampleView& pair =
          pairs.emplace_back(SampleView{.target = lists[i + 1], .has_source = has_source_, .form = form_});
      if (features_) {
        pair.frames = frames_[i / 2];
        pair.frame_width = frame_width_;
      } else {
        pair.source = lists[i];
      }
    }
    std::vector<PairScore> scores;
    if (!pairs.empty()) {
      HADAL_ASSIGN_OR_RETURN(scores, scorer.Score(pairs));
    }
    return collectives_.AllOk(is_main_ ? Write(scores) : absl::OkStatus(), "writing scores");
  }

  // Gives all ranks rank 0's lists.
  absl::Status Share(TokenLists& lists) {
    std::string bytes = is_main_ ? TokenListsToBytes(lists) : "";
    HADAL_RETURN_IF_ERROR(collectives_.Broadcast(bytes, 0, "tokens"));
    HADAL_ASSIGN_OR_RETURN(lists, TokenListsFromBytes(bytes));
    return absl::OkStatus();
  }

  // Rank 0: the next blocks, each with its context behind it.
  absl::Status ReadBlocks(const ModelCheckpoint& checkpoint, TokenLists& lists) {
    if (!blocks_) {
      blocks_.emplace(form_, options_.block, options_.context, [this, &checkpoint](std::vector<int32_t>& ids) {
        ParallelLine line;
        absl::StatusOr<bool> more = ReadLine(line, ids);
        if (!more.ok() || !*more) return more;
        words_ += CountWords(line.target) + 1;
        unknown_.Count(checkpoint.target_vocabulary(), ids);
        return more;
      });
    }
    const int64_t most_blocks = std::max<int64_t>(1, 16 * options_.batch_tokens / options_.block);
    while (std::ssize(lists) < most_blocks) {
      HADAL_ASSIGN_OR_RETURN(TextBlock block, blocks_->Next());
      if (block.tokens.empty()) break;
      block.tokens.push_back(static_cast<int32_t>(block.context));
      lists.push_back(std::move(block.tokens));
    }
    scored_.assign(lists.size(), true);
    return absl::OkStatus();
  }

  absl::Status ScoreBlocks(const ModelCheckpoint& checkpoint, PairScorer& scorer, bool& more) {
    TokenLists lists;
    const absl::Status read = is_main_ ? ReadBlocks(checkpoint, lists) : absl::OkStatus();
    HADAL_RETURN_IF_ERROR(collectives_.AllOk(read, "reading text"));
    HADAL_ASSIGN_OR_RETURN(more, collectives_.AnyRank(!lists.empty(), "reading text"));
    if (!more) return absl::OkStatus();
    HADAL_RETURN_IF_ERROR(Share(lists));
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
    size_t next = 0;
    for (const bool scored : scored_) {
      const PairScore score = scored ? scores[next++] : PairScore{NAN, 0};
      output_.stream() << absl::StrFormat("%.6f\t%d\n", score.log_probability, score.tokens);
      if (!scored) {
        ++skipped_;
        continue;
      }
      ++pairs_;
      total_.log_probability += score.log_probability;
      total_.tokens += score.tokens;
    }
    if (progress_) progress_->Advance(std::exchange(bytes_read_, 0));
    return output_.Flush();
  }

  const char* What() const { return has_source_ ? "pairs" : "lines"; }

  void Summarize() {
    if (total_.tokens > 0) {
      const double nll = -total_.log_probability / static_cast<double>(total_.tokens);
      const double nll_of_word = -total_.log_probability / static_cast<double>(words_);
      const std::string what =
          options_.block > 0
              ? absl::StrCat("blocks of ", HumanCount(options_.block), " tokens (", HumanCount(options_.context),
                             " of context), ", HumanCount(total_.tokens), " new tokens")
              : absl::StrCat(What(), ", ", HumanCount(total_.tokens), " target tokens");
      log_ << absl::StrFormat("scored %s %s: nll %.4f, perplexity %s per token; %s words: perplexity %s per word\n",
                              HumanCount(pairs_), what, nll, HumanValue(std::exp(nll), 4), HumanCount(words_),
                              HumanValue(std::exp(nll_of_word), 4));
    }
    if (pairs_ == 0) {
      log_ << "nothing was scored" << (skipped_ == 0 ? absl::StrCat(": ", options_.target, " is empty") : "") << "\n";
    }
    if (skipped_ > 0) log_ << absl::StrFormat("skipped %s %s that are too long\n", HumanCount(skipped_), What());
    if (const std::string warning = unknown_.Warning("the text"); !warning.empty()) log_ << warning << "\n";
  }

  const ScoreOptions& options_;
  bool is_main_;
  Collectives collectives_;
  std::ostream& log_;
  OutputFile output_;
  std::optional<ParallelReader> reader_;
  std::optional<StreamBlocks> blocks_;  // rank 0's, of a stream
  std::optional<TextCodec> codec_;      // of the target
  TextForm form_;
  std::vector<bool> scored_;
  std::optional<WorkProgress> progress_;
  int64_t bytes_read_ = 0;  // since the last buffer was written
  PairScore total_;
  int64_t pairs_ = 0, skipped_ = 0;
  int64_t words_ = 0;  // of the scored targets, with ends of lines
  UnknownTokens unknown_;
  DirectionTags tags_;
  bool has_source_ = true;
  int32_t frame_width_ = 0;                 // of speech
  std::optional<FeatureReader> features_;   // speech: instead of source sentences
  std::vector<std::vector<float>> frames_;  // speech: of the pairs in the buffer
};

}  // namespace

TextForm FormOf(const ModelOptions& model) {
  return {.start_token = model.start_token, .end_token = model.end_token, .reserved_ids = model.reserved_ids};
}

absl::Status RunScore(const ScoreOptions& options, Communicator& communicator, const Stream& stream, std::ostream& out,
                      std::ostream& log) {
  if (options.block == 0 && options.context > 0) return AsCommonError(InvalidArgumentError("--context needs --block"));
  return Scoring(options, communicator, out, log).Run(communicator, stream);
}

void AddScoreOptions(Command command, ScoreOptions& options) {
  AddCheckpointOption(command, options.checkpoint);
  command.AddOption("-s,--source FILE", options.source,
                    "Source sentences, one per line; of speech: prefix of features; none for a language model");
  command.AddOption("-t,--target FILE", options.target, "Translations, one per line; or plain text").Required();
  command.AddFlag("--ids", options.ids, "The target is token ids, with spaces between them");
  command.AddOption("--text-field NAME", options.text_field, "Field of a target in JSON Lines that is the text")
      .ShowDefault();
  command.AddFlag("--documents", options.documents, "Blank lines, not lines, separate the texts of a plain target");
  command.AddOption("-o,--out", options.output,
                    "File of scores, FILE.partial until complete (default: standard output)");
  command.AddFlag("--overwrite", options.overwrite, "Replace FILE, if it is not empty");
  AddDirectionOptions(command, "Languages of a model with tags, as en-de", options.direction, options.tags);
  command.AddNumber("--block", options.block,
                    "Score the text of a language model as one stream, in blocks of so many tokens; 0: line by line", 0,
                    1 << 20);
  command.AddNumber("--context", options.context,
                    "With --block: this many tokens of a block repeat the previous ones and are not scored", 0,
                    1 << 20);
  command.AddNumber("--batch-tokens", options.batch_tokens, "Tokens per side of a batch; no sentence may be longer", 64,
                    1 << 20);
  command.AddChoice<OverLong>("--on-long", options.over_long, "A pair that is too long (default: error)",
                              {{"error", OverLong::kError}, {"skip", OverLong::kSkip}});
  command.AddNumber("--buffer", options.buffer_pairs, "Pairs read at a time", int64_t{1}, int64_t{1} << 32);
  command.AddOption("--threads", options.threads, "CPU threads per rank (default: its share of the CPUs)")
      .InRange(0, 1024);
}

}  // namespace hadal
