#include "tools/translate/translate.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "pipeline/checkpoint/model_checkpoint.h"
#include "pipeline/decode/beam_search.h"
#include "pipeline/decode/decoder.h"
#include "pipeline/decode/inference_model.h"
#include "runtime/clock.h"
#include "runtime/comm/collectives.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"
#include "tools/config/config_loading.h"
#include "tools/config/run_options.h"
#include "tools/corpus/plain_text.h"
#include "tools/corpus/text_input.h"
#include "tools/corpus/text_lines.h"
#include "tools/corpus/token_lists.h"
#include "tools/metrics/human_units.h"
#include "tools/metrics/work_progress.h"

namespace hadal {
namespace {

// The timeout for other ranks while rank 0 waits for input, which may be typed.
constexpr absl::Duration kReadingTimeout = absl::Hours(24 * 30);

// The beam search options of the run that wrote the checkpoint, overridden by the command line's.
absl::StatusOr<BeamOptions> ChosenBeam(const BeamChoices& choices, const ModelCheckpoint& checkpoint) {
  config::RunConfig config;
  if (const absl::Status status = MergeConfigText(checkpoint.config_text(), checkpoint.directory(), config);
      !status.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the config in the checkpoint cannot be read; use the version that wrote it: ", status.message()));
  }
  BeamOptions beam = MakeBeamOptions(config.decode());
  beam.beam = choices.beam.value_or(beam.beam);
  beam.length_penalty = choices.length_penalty.value_or(beam.length_penalty);
  beam.max_length_a = choices.max_length_a.value_or(beam.max_length_a);
  beam.max_length_b = choices.max_length_b.value_or(beam.max_length_b);
  beam.min_length = choices.min_length.value_or(beam.min_length);
  HADAL_RETURN_IF_ERROR(ValidateBeamOptions(beam));
  return beam;
}

absl::Status CheckNbest(int32_t nbest, int32_t beam) {
  if (nbest >= 1 && nbest <= beam) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--nbest ", nbest, " is outside 1 … beam = ", beam, "; raise --beam"));
}

// A batch of lines, and those of them that are translated.
struct Buffer {
  int64_t first_line = 0;  // number of the line before the first
  int64_t lines = 0;
  int64_t bytes = 0;             // of text
  TokenLists sources;            // of the lines that are translated
  std::vector<int64_t> line_of;  // [sources] their index among the lines
};

class Translator {
 public:
  Translator(const TranslateOptions& options, Communicator& communicator, const Stream& stream,
             const TranslateStreams& streams)
      : options_(options),
        communicator_(communicator),
        stream_(stream),
        streams_(streams),
        decoder_options_(options.decoder),
        patient_(communicator, kReadingTimeout) {}

  absl::Status Run() {
    HADAL_RETURN_IF_ERROR(patient_.AllOk(IsMain() ? OpenFiles() : absl::OkStatus(), "opening files"));
    HADAL_RETURN_IF_ERROR(Load());
    HADAL_RETURN_IF_ERROR(patient_.AllOk(IsMain() ? EmptyOutput() : absl::OkStatus(), "emptying the output"));
    if (IsMain() && ShowsProgress()) progress_.emplace("translating", "bytes", TextBytes({&options_.input, 1}));
    bool more = true;
    while (more) HADAL_RETURN_IF_ERROR(TranslateBuffer(more));
    progress_.reset();
    if (IsMain()) Summarize();
    return absl::OkStatus();
  }

 private:
  bool IsMain() const { return communicator_.rank() == 0; }
  // Translations on a terminal are progress enough, and would mix with the line.
  bool ShowsProgress() const { return !Typed() && (!options_.output.empty() || isatty(STDOUT_FILENO) == 0); }
  std::ostream& out() { return options_.output.empty() ? streams_.out : output_; }

  absl::Status OpenFiles() {
    if (!options_.input.empty()) {
      HADAL_ASSIGN_OR_RETURN(input_, OpenText(options_.input));
    }
    if (!options_.output.empty()) {
      HADAL_RETURN_IF_ERROR(CheckIsNoneOf(options_.output, {options_.input}));
      output_.open(options_.output, std::ios::binary | std::ios::app);
      if (!output_) return CreationError(errno, options_.output);
    }
    if (options_.input.empty()) {
      lines_.emplace(streams_.in, "standard input");
    } else {
      lines_.emplace(*input_, options_.input);
    }
    return absl::OkStatus();
  }

  // Truncates the output only after the model is loaded, so that a failed load keeps earlier translations. Pipes and
  // devices are not truncated.
  absl::Status EmptyOutput() const {
    std::error_code error;
    if (!std::filesystem::is_regular_file(options_.output, error)) return absl::OkStatus();
    std::filesystem::resize_file(options_.output, 0, error);
    return error ? ErrnoStatus(error.value(), "empty", options_.output) : absl::OkStatus();
  }

  // Opens the checkpoint and determines the beam search options, some of which are in its config.
  absl::StatusOr<ModelCheckpoint> Open() {
    HADAL_ASSIGN_OR_RETURN(ModelCheckpoint checkpoint, ModelCheckpoint::Open(options_.checkpoint));
    HADAL_ASSIGN_OR_RETURN(decoder_options_.beam, ChosenBeam(options_.beam, checkpoint));
    HADAL_RETURN_IF_ERROR(CheckNbest(options_.nbest, decoder_options_.beam.beam));
    return checkpoint;
  }

  absl::Status Load() {
    const absl::Duration timeout = absl::Seconds(options_.wait_timeout_seconds);
    absl::StatusOr<ModelCheckpoint> checkpoint = Open();
    HADAL_RETURN_IF_ERROR(Collectives(communicator_, timeout).AllOk(checkpoint.status(), "opening the checkpoint"));
    HADAL_ASSIGN_OR_RETURN(model_, InferenceModel::Load(*std::move(checkpoint), decoder_options_.beam.beam,
                                                        communicator_, stream_, timeout));
    HADAL_ASSIGN_OR_RETURN(decoder_, Decoder::Create(model_->plan(), model_->pipeline(), model_->parameters(), stream_,
                                                     communicator_, decoder_options_, timeout));
    if (!IsMain()) return absl::OkStatus();
    streams_.log << absl::StrFormat("translating with %s: %.0f MiB of weights and %.0f MiB for decoding on rank 0\n",
                                    model_->checkpoint().directory(), model_->bytes() / 1048576.0,
                                    decoder_->bytes() / 1048576.0);
    if (Typed()) streams_.log << "type a sentence and press Enter; Ctrl-D ends" << std::endl;
    return absl::OkStatus();
  }

  bool Typed() const { return streams_.typed && options_.input.empty(); }

  // Rank 0: reads up to a buffer of lines.
  absl::Status Read(Buffer& buffer) {
    buffer.first_line = lines_->lines();
    std::string line;
    while (buffer.lines < (Typed() ? 1 : options_.buffer_lines)) {
      HADAL_ASSIGN_OR_RETURN(const bool more, lines_->Next(line));
      if (!more) return absl::OkStatus();
      std::vector<int32_t> tokens = model_->checkpoint().source_vocabulary().Encode(line);
      const int64_t place = buffer.lines++;
      buffer.bytes += static_cast<int64_t>(line.size()) + 1;
      const auto length = static_cast<int64_t>(tokens.size());
      if (length == 0) continue;
      if (length > decoder_->longest_source_tokens()) {
        if (options_.over_long == OverLong::kError) {
          return absl::InvalidArgumentError(absl::StrCat(
              "line ", lines_->lines(), " has ", length, " tokens, more than ", decoder_->longest_source_tokens(), "; ",
              decoder_options_.longest_source > decoder_->longest_source_tokens() + 1
                  ? "that is the model's limit (max_positions): split it, or use --on-long skip"
                  : "split it, or use --on-long skip or a higher --longest-source"));
        }
        ++skipped_;
        continue;
      }
      buffer.sources.push_back(std::move(tokens));
      buffer.line_of.push_back(place);
    }
    return absl::OkStatus();
  }

  absl::Status TranslateBuffer(bool& more) {
    Buffer buffer;
    HADAL_RETURN_IF_ERROR(patient_.AllOk(IsMain() ? Read(buffer) : absl::OkStatus(), "reading text"));
    HADAL_ASSIGN_OR_RETURN(more, patient_.AnyRank(buffer.lines > 0, "reading text"));
    if (!more) return absl::OkStatus();
    const Stopwatch watch;
    std::string bytes = IsMain() ? TokenListsToBytes(buffer.sources) : "";
    HADAL_RETURN_IF_ERROR(patient_.Broadcast(bytes, 0, "source tokens"));
    HADAL_ASSIGN_OR_RETURN(const TokenLists sources, TokenListsFromBytes(bytes));
    HADAL_ASSIGN_OR_RETURN(const std::vector<Translation> translations,
                           decoder_->Translate(sources, model_->checkpoint().progress().update));
    seconds_ += watch.Seconds();
    return patient_.AllOk(IsMain() ? Write(buffer, translations) : absl::OkStatus(), "writing translations");
  }

  absl::Status Write(const Buffer& buffer, std::span<const Translation> translations) {
    size_t next = 0;
    for (int64_t place = 0; place < buffer.lines; ++place) {
      const bool translated = next < buffer.line_of.size() && buffer.line_of[next] == place;
      WriteLine(buffer.first_line + place + 1, translated ? translations[next] : Translation());
      next += translated ? 1 : 0;
    }
    translated_ += static_cast<int64_t>(buffer.sources.size());
    if (progress_) progress_->Advance(buffer.bytes);
    out().flush();
    if (out()) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat(options_.output.empty() ? "standard output" : options_.output,
                                                     ": writing failed; is the disk full?"));
  }

  void WriteLine(int64_t number, const Translation& translation) {
    const size_t count = std::clamp<size_t>(translation.size(), 1, options_.nbest);
    for (size_t h = 0; h < count; ++h) {
      if (options_.nbest > 1) out() << number << '\t';
      if (h < translation.size()) {
        if (options_.print_scores) out() << absl::StrFormat("%.6f\t", translation[h].score);
        out() << model_->checkpoint().target_vocabulary().Decode(translation[h].tokens, options_.joining);
        if (h == 0) tokens_ += static_cast<int64_t>(translation[h].tokens.size()) + 1;
      } else if (options_.print_scores) {
        out() << '\t';  // an empty line has no score
      }
      out() << '\n';
    }
  }

  void Summarize() {
    streams_.log << absl::StrFormat("translated %s sentences (%s target tokens) in %s: %s sentences/s, beam %d\n",
                                    HumanCount(translated_), HumanCount(tokens_), HumanDuration(seconds_),
                                    HumanRate(seconds_ > 0 ? static_cast<double>(translated_) / seconds_ : 0),
                                    decoder_options_.beam.beam);
    if (skipped_ > 0) {
      streams_.log << absl::StrFormat("skipped %s sentences longer than %d tokens: their lines are empty\n",
                                      HumanCount(skipped_), decoder_->longest_source_tokens());
    }
  }

  const TranslateOptions& options_;
  Communicator& communicator_;
  Stream stream_;
  TranslateStreams streams_;
  DecoderOptions decoder_options_;
  Collectives patient_;
  std::unique_ptr<std::istream> input_;
  std::ofstream output_;
  std::optional<TextLines> lines_;
  std::unique_ptr<InferenceModel> model_;
  std::unique_ptr<Decoder> decoder_;
  std::optional<WorkProgress> progress_;
  double seconds_ = 0;
  int64_t translated_ = 0, tokens_ = 0, skipped_ = 0;
};

void AddBeamOptions(Command command, BeamChoices& beam) {
  command.AddOption("--beam", beam.beam, "Hypotheses kept (default: decode.beam of the checkpoint's config)")
      .InRange(1, 64)
      .ValueName("INT");
  command
      .AddOption("--length-penalty", beam.length_penalty,
                 "Exponent of the length in the score; higher is longer (default: its decode.length_penalty)")
      .ValueName("FLOAT");
  command
      .AddOption("--max-len-a", beam.max_length_a,
                 "Longest translation: a times the source's tokens + b (default: its decode.max_length_a)")
      .ValueName("FLOAT");
  command
      .AddOption("--max-len-b", beam.max_length_b, "The b of --max-len-a, in tokens (default: its decode.max_length_b)")
      .ValueName("FLOAT");
  command.AddOption("--min-len", beam.min_length, "Fewest tokens of a translation (default: 1)").ValueName("INT");
}

}  // namespace

absl::Status RunTranslate(const TranslateOptions& options, Communicator& communicator, const Stream& stream,
                          const TranslateStreams& streams) {
  if (options.buffer_lines < 1) {
    return AsCommonError(absl::InvalidArgumentError(absl::StrCat("--buffer ", options.buffer_lines, " is below 1")));
  }
  return Translator(options, communicator, stream, streams).Run();
}

void AddTranslateOptions(Command command, TranslateOptions& options) {
  DecoderOptions& decoder = options.decoder;
  command
      .AddOption("RUN_OR_DIR", options.checkpoint,
                 "Checkpoint, or run directory (its best checkpoint, else its newest)")
      .Required();
  command.AddFormer("-c,--checkpoint", "hadal translate RUN_OR_DIR");
  command.AddOption("-i,--input", options.input, "File of sentences, one per line (default: standard input)");
  command.AddOption("-o,--out", options.output, "File of translations (default: standard output)");
  AddBeamOptions(command, options.beam);
  command.AddOption("--nbest", options.nbest, "Translations printed per sentence, best first").ShowDefault();
  command.AddFlag("--print-scores", options.print_scores, "Print each translation's score, then a tab, before it");
  command.AddChoice<OverLong>("--on-long", options.over_long, "A sentence over --longest-source (default: error)",
                              {{"error", OverLong::kError}, {"skip", OverLong::kSkip}});
  command.AddOption("--longest-source", decoder.longest_source, "Longest source in tokens, with </s>").ShowDefault();
  command.AddChoice<PieceJoining>("--join", options.joining,
                                  "How tokens are joined to text (default: by the vocabulary)",
                                  {{"default", PieceJoining::kDefault},
                                   {"spaces", PieceJoining::kSpaces},
                                   {"bpe", PieceJoining::kBpe},
                                   {"sentencepiece", PieceJoining::kSentencePiece}});
  command.AddOption("--batch", decoder.sentences, "Sentences translated together; 0: as memory allows").ShowDefault();
  command
      .AddSetter<int64_t>(
          "--cache-mib", [&decoder](const int64_t& mib) { decoder.cache_limit_bytes = mib << 20; },
          "Limit of a rank's caches (default: 512, or what one sentence needs)")
      .InRange(int64_t{1}, int64_t{1} << 24)
      .ValueName("MIB");
  command.AddOption("--buffer", options.buffer_lines, "Lines read at a time").ShowDefault();
  command.AddOption("--threads", options.threads, "CPU threads per rank (default: its share of the CPUs)")
      .InRange(0, 1024);
}

}  // namespace hadal
