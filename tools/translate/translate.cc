#include "tools/translate/translate.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "pipeline/checkpoint/model_checkpoint.h"
#include "pipeline/decode/beam_search.h"
#include "pipeline/decode/decoder.h"
#include "runtime/clock.h"
#include "runtime/comm/collectives.h"
#include "runtime/data/packed_batch.h"
#include "runtime/data/vocabulary.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"
#include "tools/corpus/feature_reader.h"
#include "tools/corpus/text_codec.h"
#include "tools/corpus/text_lines.h"
#include "tools/output/human_units.h"
#include "tools/output/work_progress.h"
#include "tools/translate/leading_tokens.h"
#include "tools/translate/translation_output.h"

namespace hadal {
namespace {

// The timeout for other ranks while rank 0 waits for input, which may be typed.
constexpr absl::Duration kReadingTimeout = absl::Hours(24 * 30);

// A batch of lines, and those of them that are translated.
struct Buffer {
  int64_t first_line = 0;  // number of the line before the first
  int64_t lines = 0;
  int64_t bytes = 0;                       // of text
  std::vector<std::string> texts;          // of all lines, for JSON
  TokenLists sources, prefixes;            // of the lines that are translated
  std::vector<std::vector<float>> frames;  // speech: instead of sources
  std::vector<int64_t> line_of;            // [sources] their index among the lines
};

class Translator {
 public:
  Translator(const TranslateOptions& options, Communicator& communicator, const Stream& stream,
             const TranslateStreams& streams)
      : options_(options),
        communicator_(communicator),
        stream_(stream),
        streams_(streams),
        output_(streams_.out),
        form_{.nbest = options.nbest,
              .scores = options.print_scores,
              .json = options.json,
              .joining = options.joining,
              .input_name = options.language_model ? "prompt" : "source"},
        decoder_options_(options.decoder),
        patient_(communicator, kReadingTimeout) {}

  absl::Status Run() {
    HADAL_RETURN_IF_ERROR(patient_.AllOk(OpenFeatures(), "opening features"));
    HADAL_RETURN_IF_ERROR(patient_.AllOk(IsMain() ? OpenFiles() : absl::OkStatus(), "opening files"));
    HADAL_RETURN_IF_ERROR(Load(/*several=*/false));
    HADAL_RETURN_IF_ERROR(TranslateAll());
    if (IsMain()) Summarize();
    return absl::OkStatus();
  }

  absl::Status RunSeveral(const NextTranslation& next) {
    HADAL_RETURN_IF_ERROR(Load(/*several=*/true));
    while (true) {
      absl::StatusOr<std::optional<TranslationJob>> job;
      if (IsMain()) job = next();
      HADAL_RETURN_IF_ERROR(patient_.AllOk(IsMain() ? job.status() : absl::OkStatus(), "preparing a translation"));
      HADAL_ASSIGN_OR_RETURN(const bool more,
                             patient_.AnyRank(IsMain() && job->has_value(), "preparing a translation"));
      if (!more) break;
      HADAL_RETURN_IF_ERROR(Translate(IsMain() ? **job : TranslationJob()));
    }
    if (IsMain()) Summarize();
    return absl::OkStatus();
  }

 private:
  // One of several files. `job`: rank 0's.
  absl::Status Translate(TranslationJob job) {
    if (options_.tags != LanguageTags::kNone) {
      HADAL_RETURN_IF_ERROR(patient_.Broadcast(job.direction, 0, "the direction"));
      options_.direction = job.direction;
      HADAL_RETURN_IF_ERROR(AsCommonError(SetTags(model_->checkpoint())));
    }
    options_.input = job.input;
    options_.output = job.output;
    HADAL_RETURN_IF_ERROR(patient_.AllOk(IsMain() ? OpenFiles() : absl::OkStatus(), "opening files"));
    return TranslateAll();
  }

  absl::Status TranslateAll() {
    if (IsMain() && ShowsProgress()) {
      progress_.emplace(Doing(), features_ ? "frames" : "bytes",
                        features_ ? features_->manifest().frames : TextBytes({&options_.input, 1}));
    }
    bool more = true;
    while (more) HADAL_RETURN_IF_ERROR(TranslateBuffer(more));
    progress_.reset();
    return patient_.AllOk(output_.Finish(), "closing the output");
  }

  bool IsMain() const { return communicator_.rank() == 0; }
  const char* Doing() const { return options_.language_model ? "writing" : "translating"; }
  bool ReadsStandardInput() const { return options_.input == (options_.language_model ? "-" : ""); }
  // Translations on a terminal are progress enough, and would mix with the line.
  bool ShowsProgress() const { return !Typed() && (!options_.output.empty() || isatty(STDOUT_FILENO) == 0); }

  // Every rank reads the features itself: the input is their prefix, and no file.
  absl::Status OpenFeatures() {
    const bool is_text = PathExists(options_.input) && !std::filesystem::is_directory(options_.input);
    if (options_.input.empty() || is_text || !PathExists(options_.input + ".json")) {
      return absl::OkStatus();
    }
    HADAL_ASSIGN_OR_RETURN(features_, FeatureReader::Open(options_.input));
    if (options_.prefixes.empty() && options_.direction.empty()) return absl::OkStatus();
    return InvalidArgumentError("outputs of speech have no forced beginnings; omit --prefix and --direction");
  }

  absl::Status OpenFiles() {
    if (options_.language_model && options_.input.empty()) {
      lines_.emplace(empty_prompt_, "");
    } else if (ReadsStandardInput()) {
      lines_.emplace(streams_.in, "standard input");
    } else if (!features_) {
      HADAL_ASSIGN_OR_RETURN(lines_, TextLines::Open(options_.input));
    }
    if (!options_.prefixes.empty()) {
      HADAL_ASSIGN_OR_RETURN(prefix_lines_, TextLines::Open(options_.prefixes));
    }
    std::vector<std::string> inputs = features_ ? features_->Files() : std::vector<std::string>();
    inputs.insert(inputs.end(), {options_.input, options_.prefixes, "/dev/stdin"});
    HADAL_RETURN_IF_ERROR(output_.Open(options_.output, inputs, options_.overwrite));
    const bool unreadable = ReadsStandardInput() && !streams_.unreadable.empty();
    return unreadable ? InvalidArgumentError(streams_.unreadable) : absl::OkStatus();
  }

  // Opens the checkpoint and determines the beam search options, some of which are in its config.
  absl::StatusOr<ModelCheckpoint> Open(bool several) {
    HADAL_ASSIGN_OR_RETURN(ModelCheckpoint checkpoint, ModelCheckpoint::Open(options_.checkpoint));
    HADAL_RETURN_IF_ERROR(checkpoint.CheckDecodes());
    const bool translates = checkpoint.plan().options.has_encoder();
    if (translates && options_.language_model) {
      return InvalidArgumentError(
          "the model translates, and only a language model continues prompts; `hadal translate --temperature 1` draws "
          "translations, and its --prefix FILE forces their beginnings");
    }
    if (!translates && !options_.language_model) {
      return InvalidArgumentError(
          "the model is a language model (encoder_layers = 0) and cannot translate; `hadal sample` writes text with "
          "it, `hadal score --target FILE` says how probable it finds text");
    }
    if (features_) {
      HADAL_RETURN_IF_ERROR(CheckFeatureKind(checkpoint.inputs(), features_->manifest().inputs(), options_.input));
    } else if (checkpoint.plan().options.reads_speech()) {
      return InvalidArgumentError(
          "the model recognises speech; give --input PREFIX, the features that speech_features.py wrote");
    }
    HADAL_ASSIGN_OR_RETURN(decoder_options_.beam, ChosenBeam(options_.beam, options_.nbest, checkpoint));
    if (!several) HADAL_RETURN_IF_ERROR(SetTags(checkpoint));
    if (several) {
      HADAL_ASSIGN_OR_RETURN(options_.tags, ChosenTags(checkpoint, options_.tags, /*has_direction=*/true));
    }
    const ModelOptions& model = checkpoint.plan().options;
    decoder_options_.beam.start_token = model.start_token;
    decoder_options_.beam.end_token = form_.end_token = model.end_token;
    decoder_options_.beam.reserved_ids = model.reserved_ids;
    decoder_options_.beam.mask_token = model.mask_token;
    HADAL_RETURN_IF_ERROR(OpenCodec(checkpoint.target_vocabulary()));
    decoder_options_.prefixes = options_.language_model || !options_.prefixes.empty() || form_.hidden_tokens > 0 ||
                                (several && options_.tags == LanguageTags::kM2m100);
    return checkpoint;
  }

  // Rank 0: where the vocabulary itself does not turn text into ids and back.
  absl::Status OpenCodec(const Vocabulary& vocabulary) {
    if (!IsMain() || (!options_.ids && vocabulary.kind() != VocabularyKind::kTokenizer)) return absl::OkStatus();
    HADAL_ASSIGN_OR_RETURN(codec_, TextCodec::Open(vocabulary, options_.ids ? CodecInput::kIds : CodecInput::kText));
    form_.decode = [this](std::span<const int32_t> tokens) {
      absl::StatusOr<std::string> text = codec_->Decode({tokens.begin(), tokens.end()});
      decoding_.Update(text.status());
      return text.value_or("");
    };
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<int32_t>> EncodeForced(const std::string& text) {
    if (!codec_) return ForcedTokens(model_->checkpoint().target_vocabulary(), text);
    return codec_->Encode(text);
  }

  absl::Status SetTags(const ModelCheckpoint& checkpoint) {
    HADAL_ASSIGN_OR_RETURN(tags_, FindDirectionTags(checkpoint, options_.tags, options_.direction));
    form_.hidden_tokens = tags_.target.size();
    return absl::OkStatus();
  }

  absl::Status Load(bool several) {
    const absl::Duration timeout = absl::Seconds(options_.wait_timeout_seconds);
    absl::StatusOr<ModelCheckpoint> checkpoint = Open(several);
    HADAL_RETURN_IF_ERROR(Collectives(communicator_, timeout).AllOk(checkpoint.status(), "opening the checkpoint"));
    HADAL_ASSIGN_OR_RETURN(model_, InferenceModel::Load(*std::move(checkpoint), decoder_options_.beam.beam,
                                                        communicator_, stream_, timeout));
    HADAL_ASSIGN_OR_RETURN(decoder_, Decoder::Create(model_->plan(), model_->pipeline(), model_->parameters(), stream_,
                                                     communicator_, decoder_options_, timeout));
    if (!IsMain()) return absl::OkStatus();
    streams_.log << absl::StrFormat("%s with %s: %.0f MiB of weights and %.0f MiB for decoding on rank 0\n", Doing(),
                                    model_->checkpoint().directory(), model_->bytes() / 1048576.0,
                                    decoder_->bytes() / 1048576.0);
    if (Typed()) streams_.log << "type a sentence and press Enter; Ctrl-D ends" << std::endl;
    return absl::OkStatus();
  }

  bool Typed() const { return streams_.typed && ReadsStandardInput(); }

  // Rank 0: the tokens that an output must begin with: the target's tag, and those of the last line of `lines`, named
  // `name`.
  absl::StatusOr<std::vector<int32_t>> Forced(const std::string& text, const TextLines& lines, const std::string& name,
                                              int64_t source_tokens) {
    absl::StatusOr<std::vector<int32_t>> tokens = EncodeForced(text);
    if (!tokens.ok()) return InvalidArgumentError(name, ":", lines.lines(), ": ", tokens.status().message());
    tokens->insert(tokens->begin(), tags_.target.begin(), tags_.target.end());
    const int64_t longest = decoder_->longest_output_tokens(source_tokens);
    if (std::ssize(*tokens) <= longest) return tokens;
    return InvalidArgumentError(name, ":", lines.lines(), " has ", tokens->size(),
                                " tokens, more than the longest output, ", longest, "; shorten it, or raise ",
                                options_.language_model ? "--max-len" : "--max-len-b",
                                " (at most the model's max_positions - 1)");
  }

  // Rank 0: reads the forced beginning of the input's last line; `more`: there was such a line.
  absl::Status ReadPrefix(bool more, std::string& prefix) {
    if (!prefix_lines_) return absl::OkStatus();
    HADAL_ASSIGN_OR_RETURN(const bool has_prefix, prefix_lines_->Next(prefix));
    if (has_prefix == more) return absl::OkStatus();
    return InvalidArgumentError("--prefix ", options_.prefixes,
                                has_prefix ? " has more lines than the input, which has " : " ends after line ",
                                has_prefix ? lines_->lines() : prefix_lines_->lines(),
                                "; give a line for each sentence, an empty one where nothing is forced");
  }

  // Rank 0: reads up to a buffer of lines.
  absl::Status Read(Buffer& buffer) {
    buffer.first_line = lines_->lines();
    std::string line, prefix;
    while (buffer.lines < (Typed() ? 1 : options_.buffer_lines)) {
      HADAL_ASSIGN_OR_RETURN(const bool more, lines_->Next(line));
      HADAL_RETURN_IF_ERROR(ReadPrefix(more, prefix));
      if (!more) return absl::OkStatus();
      ++buffer.lines;
      buffer.bytes += static_cast<int64_t>(line.size()) + 1;
      if (options_.json) buffer.texts.push_back(line);
      HADAL_RETURN_IF_ERROR(options_.language_model ? TakePrompt(line, buffer) : TakeSource(line, prefix, buffer));
    }
    return absl::OkStatus();
  }

  // Rank 0, once.
  void WarnOfUnknownTokens(const Buffer& buffer) {
    if (warned_) return;
    UnknownTokens unknown;
    for (const std::vector<int32_t>& source : buffer.sources) {
      unknown.Count(model_->checkpoint().source_vocabulary(), source);
    }
    const std::string warning =
        unknown.Warning(absl::StrCat("lines ", buffer.first_line + 1, " to ", buffer.first_line + buffer.lines));
    if (warning.empty()) return;
    warned_ = true;
    streams_.log << warning << ", and join the output with --join sentencepiece or bpe\n";
  }

  // Every rank: reads up to a buffer of utterances, while they have fewer than kMostValues values.
  absl::Status ReadUtterances(Buffer& buffer) {
    constexpr size_t kMostValues = size_t{1} << 25;  // 128 MiB
    const auto width = static_cast<int64_t>(features_->manifest().frame_width);
    buffer.first_line = utterances_read_;
    for (size_t values = 0; buffer.lines < options_.buffer_lines && values < kMostValues;) {
      const absl::StatusOr<std::span<const float>> frames = features_->Next();
      if (absl::IsOutOfRange(frames.status())) break;
      HADAL_RETURN_IF_ERROR(frames.status());
      values += frames->size();
      ++utterances_read_;
      ++buffer.lines;
      const int64_t count = std::ssize(*frames) / width, rows = SubsampledRows(count);
      buffer.bytes += count;
      if (options_.json) buffer.texts.push_back(absl::StrCat(options_.input, ":", utterances_read_));
      if (rows > decoder_->longest_utterance_rows()) {
        if (options_.over_long == OverLong::kError) {
          return InvalidArgumentError("utterance ", utterances_read_, " has ", count, " frames, ", rows,
                                      " encoder rows, more than ", decoder_->longest_utterance_rows(),
                                      "; split it, or use --on-long skip or a higher --longest-source");
        }
        ++skipped_;
        continue;
      }
      buffer.frames.emplace_back(frames->begin(), frames->end());
      buffer.line_of.push_back(buffer.lines - 1);
    }
    return absl::OkStatus();
  }

  absl::Status TakePrompt(const std::string& line, Buffer& buffer) {
    HADAL_ASSIGN_OR_RETURN(
        std::vector<int32_t> tokens,
        Forced(line, *lines_, ReadsStandardInput() ? "standard input" : options_.input, /*source_tokens=*/0));
    // Ids as in training begin with the token that the decoder gives itself.
    if (!tokens.empty() && tokens.front() == decoder_options_.beam.start_token) tokens.erase(tokens.begin());
    if (std::ranges::count(tokens, form_.end_token) > 0) {
      return InvalidArgumentError(lines_->Place(), ": the prompt has the token that ends a text, ", form_.end_token,
                                  "; leave it out");
    }
    buffer.sources.emplace_back();
    buffer.prefixes.push_back(std::move(tokens));
    buffer.line_of.push_back(buffer.lines - 1);
    return absl::OkStatus();
  }

  absl::Status TakeSource(const std::string& line, const std::string& prefix, Buffer& buffer) {
    std::vector<int32_t> tokens = model_->checkpoint().source_vocabulary().Encode(line);
    if (tokens.empty()) return absl::OkStatus();
    source_tokens_ += std::ssize(tokens);
    source_unknown_ += std::ranges::count(tokens, kUnknownToken);
    tokens.insert(tokens.begin(), tags_.source.begin(), tags_.source.end());
    const auto length = static_cast<int64_t>(tokens.size());
    if (length > decoder_->longest_source_tokens()) {
      if (options_.over_long == OverLong::kError) {
        return InvalidArgumentError(lines_->Place(), " has ", length, " tokens, more than ",
                                    decoder_->longest_source_tokens(), "; ",
                                    decoder_options_.longest_source > decoder_->longest_source_tokens() + 1
                                        ? "that is the model's limit (max_positions): split it, or use --on-long skip"
                                        : "split it, or use --on-long skip or a higher --longest-source");
      }
      ++skipped_;
      return absl::OkStatus();
    }
    std::vector<int32_t> forced;
    if (!prefix.empty() || !tags_.target.empty()) {
      const bool from_file = prefix_lines_.has_value();
      HADAL_ASSIGN_OR_RETURN(
          forced, Forced(prefix, from_file ? *prefix_lines_ : *lines_, from_file ? options_.prefixes : "line", length));
    }
    buffer.sources.push_back(std::move(tokens));
    buffer.prefixes.push_back(std::move(forced));
    buffer.line_of.push_back(buffer.lines - 1);
    return absl::OkStatus();
  }

  // Gives all ranks rank 0's sentences; of speech, every rank has them.
  absl::Status Share(const Buffer& buffer, TokenLists& sources, std::vector<OutputStart>& starts) {
    if (features_) {
      for (const int64_t place : buffer.line_of) {
        sources.emplace_back();
        starts.push_back({.number = static_cast<uint32_t>(buffer.first_line + place + 1)});
      }
      return absl::OkStatus();
    }
    TokenLists lists = buffer.sources;
    lists.insert(lists.end(), buffer.prefixes.begin(), buffer.prefixes.end());
    std::vector<int32_t>& numbers = lists.emplace_back();
    for (const int64_t place : buffer.line_of) numbers.push_back(static_cast<int32_t>(buffer.first_line + place + 1));
    std::string bytes = IsMain() ? TokenListsToBytes(lists) : "";
    HADAL_RETURN_IF_ERROR(patient_.Broadcast(bytes, 0, "source tokens"));
    HADAL_ASSIGN_OR_RETURN(lists, TokenListsFromBytes(bytes));
    const size_t count = lists.size() / 2;
    for (size_t s = 0; s < count; ++s) {
      sources.push_back(std::move(lists[s]));
      starts.push_back({std::move(lists[count + s]), static_cast<uint32_t>(lists.back()[s])});
    }
    return absl::OkStatus();
  }

  absl::Status TranslateBuffer(bool& more) {
    Buffer buffer;
    const absl::Status read = features_ ? ReadUtterances(buffer) : IsMain() ? Read(buffer) : absl::OkStatus();
    HADAL_RETURN_IF_ERROR(patient_.AllOk(read, "reading input"));
    HADAL_ASSIGN_OR_RETURN(more, patient_.AnyRank(buffer.lines > 0, "reading text"));
    if (!more) return absl::OkStatus();
    if (IsMain() && !features_) WarnOfUnknownTokens(buffer);
    const Stopwatch watch;
    TokenLists sources;
    std::vector<OutputStart> starts;
    HADAL_RETURN_IF_ERROR(Share(buffer, sources, starts));
    const std::vector<std::span<const float>> utterances(buffer.frames.begin(), buffer.frames.end());
    HADAL_ASSIGN_OR_RETURN(
        const std::vector<Translation> translations,
        decoder_->Translate(sources, model_->checkpoint().progress().growth_update(), starts, utterances));
    seconds_ += watch.Seconds();
    return patient_.AllOk(IsMain() ? Write(buffer, translations) : absl::OkStatus(), "writing translations");
  }

  absl::Status Write(const Buffer& buffer, std::span<const Translation> translations) {
    size_t next = 0;
    for (int64_t place = 0; place < buffer.lines; ++place) {
      const bool translated = next < buffer.line_of.size() && buffer.line_of[next] == place;
      std::span<const Hypothesis> translation;
      if (translated) translation = translations[next++];
      if (!translation.empty()) {
        tokens_ += std::ssize(translation[0].tokens) + 1;
        shorter_ += std::ssize(translation[0].tokens) < decoder_options_.beam.min_length ? 1 : 0;
      }
      output_.stream() << FormatOutput(form_, model_->checkpoint().target_vocabulary(), buffer.first_line + place + 1,
                                       options_.json ? buffer.texts[place] : std::string_view(), translation);
    }
    HADAL_RETURN_IF_ERROR(decoding_);
    translated_ += std::ssize(buffer.line_of);
    if (progress_) progress_->Advance(buffer.bytes);
    return output_.Flush();
  }

  std::string How() const {
    const BeamOptions& beam = decoder_options_.beam;
    if (!beam.sampling) return absl::StrCat("beam ", beam.beam);
    return absl::StrCat("drawn with temperature ", beam.sampling->temperature, ", top-k ", beam.sampling->top_k,
                        ", top-p ", beam.sampling->top_p, ", seed ", beam.sampling->seed);
  }

  void Summarize() {
    streams_.log << absl::StrFormat("%s (%s target tokens) in %s: %s sentences/s, %s\n",
                                    options_.language_model
                                        ? absl::StrCat("continued ", HumanCount(translated_), " prompts")
                                        : absl::StrCat("translated ", HumanCount(translated_), " sentences"),
                                    HumanCount(tokens_), HumanDuration(seconds_),
                                    HumanRate(seconds_ > 0 ? static_cast<double>(translated_) / seconds_ : 0), How());
    if (skipped_ > 0) {
      streams_.log << absl::StrFormat("skipped %s sentences longer than %d tokens: their lines are empty\n",
                                      HumanCount(skipped_), decoder_->longest_source_tokens());
    }
    if (shorter_ > 0) {
      streams_.log << absl::StrFormat(
          "warning: %s outputs end at the longest length, before --min-len %d; raise %s, "
          "if the model's max_positions allow it, or lower --min-len\n",
          HumanCount(shorter_), decoder_options_.beam.min_length,
          options_.language_model ? "--max-len" : "--max-len-b");
    }
    streams_.log << UnknownWarning("source", source_unknown_, source_tokens_);
  }

  TranslateOptions options_;
  Communicator& communicator_;
  Stream stream_;
  TranslateStreams streams_;
  OutputFile output_;
  OutputForm form_;
  std::optional<TextCodec> codec_;
  absl::Status decoding_;  // the first error of form_.decode
  DirectionTags tags_;
  DecoderOptions decoder_options_;
  Collectives patient_;
  std::istringstream empty_prompt_{"\n"};
  std::optional<TextLines> lines_, prefix_lines_;
  std::optional<FeatureReader> features_;  // speech: instead of lines
  int64_t utterances_read_ = 0;
  std::unique_ptr<InferenceModel> model_;
  std::unique_ptr<Decoder> decoder_;
  std::optional<WorkProgress> progress_;
  double seconds_ = 0;
  int64_t translated_ = 0, tokens_ = 0, skipped_ = 0, shorter_ = 0, source_tokens_ = 0, source_unknown_ = 0;
  bool warned_ = false;  // of unknown tokens
};

}  // namespace

absl::Status RunTranslate(const TranslateOptions& options, Communicator& communicator, const Stream& stream,
                          const TranslateStreams& streams) {
  return Translator(options, communicator, stream, streams).Run();
}

absl::Status RunTranslations(const TranslateOptions& options, const NextTranslation& next, Communicator& communicator,
                             const Stream& stream, const TranslateStreams& streams) {
  return Translator(options, communicator, stream, streams).RunSeveral(next);
}

}  // namespace hadal
