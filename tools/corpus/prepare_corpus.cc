#include "tools/corpus/prepare_corpus.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/machine.h"
#include "runtime/status_macros.h"
#include "runtime/thread_team.h"
#include "tools/corpus/feature_reader.h"
#include "tools/corpus/text_lines.h"
#include "tools/output/work_progress.h"

namespace hadal {
namespace {

// "FILE:LINE / FILE:LINE": the position of a pair of lines, or of a line of plain text.
std::string PlaceOf(const TextPair& pair, int64_t number) {
  const std::string target = absl::StrCat(pair.target, ":", number);
  return pair.source.empty() ? target : absl::StrCat(pair.source, ":", number, " / ", target);
}

// Checks one pair of lines as text. Returns true to keep it; counts it if it is skipped.
absl::StatusOr<bool> KeepText(const TextPair& pair, const ParallelLine& line, const PrepareOptions& options,
                              SkippedLines& skipped) {
  if (!line.invalid.empty()) {
    if (options.on_invalid == BadLine::kError) {
      return InvalidArgumentError(line.invalid, "; correct it, or skip such lines with --on-invalid skip");
    }
    ++skipped.invalid;
    return false;
  }
  if (line.empty) {
    if (options.on_empty == BadLine::kError) {
      return InvalidArgumentError(PlaceOf(pair, line.number), pair.source.empty() ? ": the line" : ": a side",
                                  " is empty; skip such lines with --on-empty skip");
    }
    ++skipped.empty;
    return false;
  }
  return true;
}

// Checks that a file of transcripts, of `lines` lines, has one for each utterance.
absl::Status CheckUtterances(const TextPair& pair, int64_t lines) {
  if (pair.features.empty()) return absl::OkStatus();
  HADAL_ASSIGN_OR_RETURN(const FeatureReader reader, FeatureReader::Open(pair.features));
  if (reader.manifest().utterances == lines) return absl::OkStatus();
  return InvalidArgumentError(pair.target, " has ", lines, " lines, ", pair.features, ".json has ",
                              reader.manifest().utterances,
                              " utterances; make the features again with speech_features.py");
}

// Calls visit(pair index, line) for every kept pair of lines that is not `dropped`, in order, and counts in `survey`.
// `doing`: what the progress line says.
absl::Status ForEachKept(const std::string& doing, const Split& split, const PrepareOptions& options,
                         const std::vector<bool>& dropped, SplitSurvey& survey,
                         const std::function<absl::Status(size_t, const ParallelLine&)>& visit) {
  survey.texts.resize(split.pairs.size());
  std::vector<std::string> paths;
  bool has_markup = false;  // of which only a part is text
  for (const TextPair& pair : split.pairs) {
    if (!pair.one_file) paths.push_back(pair.source);
    paths.push_back(pair.target);
    has_markup |= IsTokenFile(pair.target);
    if (!pair.one_file) continue;
    HADAL_ASSIGN_OR_RETURN(const std::unique_ptr<PairFile> pairs, PairFile::Open(pair.target, {}, false));
    has_markup |= pairs != nullptr;
  }
  WorkProgress progress(absl::StrCat(doing, " ", split.name), "bytes", has_markup ? 0 : TextBytes(paths));
  const std::vector<std::string> names = CorpusNames(split.pairs);
  ParallelLine line;
  for (size_t i = 0; i < split.pairs.size(); ++i) {
    HADAL_ASSIGN_OR_RETURN(ParallelReader reader, ParallelReader::Open(split.pairs[i]));
    TextFindings& text = survey.texts[i];
    text.name = names[i];
    while (true) {
      HADAL_ASSIGN_OR_RETURN(const bool more, reader.Next(line));
      if (!more) break;
      const auto index = static_cast<size_t>(survey.lines++);
      ++text.lines;
      progress.Advance(static_cast<int64_t>(line.source.size() + line.target.size()) + (options.monolingual ? 1 : 2));
      HADAL_ASSIGN_OR_RETURN(const bool keep, KeepText(split.pairs[i], line, options, text.skipped));
      if (keep && (index >= dropped.size() || !dropped[index])) HADAL_RETURN_IF_ERROR(visit(i, line));
    }
    HADAL_RETURN_IF_ERROR(CheckUtterances(split.pairs[i], text.lines));
    survey.byte_order_marks += reader.had_byte_order_mark() ? 1 : 0;
    survey.carriage_returns += reader.carriage_returns();
    survey.more_columns += reader.more_columns();
    if (const std::string oddity = reader.Oddity(); !oddity.empty()) survey.oddities.push_back(oddity);
  }
  return absl::OkStatus();
}

// Checks one pair as tokens. `training`: of training text.
absl::StatusOr<bool> KeepTokens(const std::string& place, const Sample& sample, bool training,
                                const PrepareOptions& options, TextFindings& text) {
  SkippedLines& skipped = text.skipped;
  if ((!options.monolingual && sample.source.empty()) || sample.target.empty()) {
    if (options.on_empty == BadLine::kError) {
      return InvalidArgumentError(place, ": ", options.monolingual ? "it" : "a side",
                                  " has no tokens; skip such lines with --on-empty skip");
    }
    ++skipped.empty;
    return false;
  }
  const auto longest = static_cast<int64_t>(std::max(sample.source.size(), sample.target.size()));
  if (options.block == 0 && longest > options.max_tokens) {
    if (options.on_long == BadLine::kError) {
      return InvalidArgumentError(place, options.monolingual ? ": it has " : ": a side has ", longest,
                                  " tokens, the limit is ", options.max_tokens,
                                  "; raise --max-tokens, or skip such lines with --on-long skip");
    }
    ++skipped.too_long;
    return false;
  }
  const auto shortest = static_cast<double>(std::min(sample.source.size(), sample.target.size()));
  if (options.monolingual || static_cast<double>(longest) <= LengthRatio(options) * shortest) return true;
  ++text.high_ratio;
  if (!training || !options.max_length_ratio) return true;
  ++skipped.high_ratio;
  return false;
}

// Of the first features; a frame width of 0 for text.
absl::StatusOr<FeatureManifest> FeaturesOf(const Split& split, const PrepareOptions& options) {
  if (!options.features) return FeatureManifest();
  HADAL_ASSIGN_OR_RETURN(const FeatureReader reader, FeatureReader::Open(split.pairs[0].features));
  return reader.manifest();
}

// Cuts the stream of a text's documents into blocks.
class BlockCutter {
 public:
  BlockCutter(const TextForm& form, CorpusWriter& writer) : form_(form), writer_(writer) {}

  // A document's ids, without the tokens that start and end it.
  absl::Status Add(int32_t text, std::span<const int32_t> ids) {
    if (text != text_) HADAL_RETURN_IF_ERROR(Finish());
    if (text != text_ || form_.start_token != form_.end_token) stream_.push_back(form_.start_token);
    text_ = text;
    stream_.insert(stream_.end(), ids.begin(), ids.end());
    stream_.push_back(form_.end_token);
    size_t begin = 0;
    const auto rows = static_cast<size_t>(form_.block);
    for (; stream_.size() - begin > rows; begin += rows) {
      HADAL_RETURN_IF_ERROR(Write(std::span(stream_).subspan(begin, rows + 1)));
    }
    stream_.erase(stream_.begin(), stream_.begin() + static_cast<int64_t>(begin));
    return absl::OkStatus();
  }
  // Writes what is left of the stream as a shorter block.
  absl::Status Finish() {
    if (stream_.size() > 1) {
      HADAL_RETURN_IF_ERROR(Write(stream_));
      ++short_blocks_;
    }
    stream_.clear();
    return absl::OkStatus();
  }
  int64_t short_blocks() const { return short_blocks_; }

 private:
  absl::Status Write(std::span<const int32_t> tokens) {
    return writer_.Add({.corpus_id = text_, .target = tokens, .has_source = false, .form = form_});
  }

  const TextForm form_;
  CorpusWriter& writer_;
  std::vector<int32_t> stream_;  // what no block has yet, behind the last token of the block before
  int32_t text_ = -1;
  int64_t short_blocks_ = 0;
};

void AddTags(const Direction& direction, LanguageTags tags, const Vocabulary& source, const Vocabulary& target,
             Sample& sample) {
  sample.prefix.clear();
  if (const std::string tag = EncoderTag(tags, direction); !tag.empty()) sample.prefix = {source.Id(tag)};
  if (const std::string tag = DecoderTag(tags, direction); !tag.empty()) {
    sample.target.insert(sample.target.begin(), target.Id(tag));
  }
}

}  // namespace

absl::Status CheckReadable(const Split& split) {
  for (const TextPair& pair : split.pairs) {
    if (!pair.source.empty()) HADAL_RETURN_IF_ERROR(OpenFile(pair.source).status());
    HADAL_RETURN_IF_ERROR(OpenFile(pair.target).status());
  }
  return absl::OkStatus();
}

std::vector<int64_t> SplitSurvey::usable() const {
  std::vector<int64_t> usable;
  for (const TextFindings& text : texts) usable.push_back(text.kept());
  return usable;
}

absl::StatusOr<SplitSurvey> SurveySplit(const Split& split, const PrepareOptions& options, TextHashes& held_out) {
  SplitSurvey survey;
  RepeatedText repeated_text(split.pairs);
  const auto visit = [&](size_t pair, const ParallelLine& line) {
    TextFindings& text = survey.texts[pair];
    const uint64_t hash = HashOfPair(split.pairs[pair].direction, line);
    const RepeatedText::Repeated repeated = repeated_text.Add(pair, line, hash);
    text.duplicates += repeated.pair ? 1 : 0;
    text.repeated_sources += repeated.source ? 1 : 0;
    text.repeated_targets += repeated.target ? 1 : 0;
    text.equal_sides += !options.monolingual && line.source == line.target ? 1 : 0;
    if (!split.training) {
      held_out.insert(hash);
      return absl::OkStatus();
    }
    const bool is_held_out = held_out.contains(hash);
    text.held_out += is_held_out ? 1 : 0;
    const bool overlaps = is_held_out && options.drop_test_overlap;
    if (!overlaps && !(repeated.pair && options.drop_duplicates)) return absl::OkStatus();
    ++(overlaps ? text.skipped.held_out : text.skipped.duplicates);
    survey.dropped.resize(static_cast<size_t>(survey.lines));
    survey.dropped.back() = true;
    return absl::OkStatus();
  };
  HADAL_RETURN_IF_ERROR(ForEachKept("reading", split, options, /*dropped=*/{}, survey, visit));
  for (size_t pair = 0; pair < split.pairs.size(); ++pair) {
    const TextFindings& text = survey.texts[pair];
    if (text.kept() > 0 || split.pairs.size() == 1) continue;  // a single one: CheckSkipped says why
    return InvalidArgumentError(
        split.name, ": ", text.name, " (", split.pairs[pair].target, ") has no usable lines",
        text.lines > 0 ? absl::StrCat(", ", DescribeSkipped(text.skipped, text.lines, options)) : "",
        "; give it some, or leave it out");
  }
  HADAL_RETURN_IF_ERROR(
      CheckSkipped(split.name, split.first_file(), survey.lines, Total(survey.texts).skipped, options));
  return survey;
}

absl::StatusOr<SampledText> SampleText(const Split& split, const PrepareOptions& options, const SplitSurvey& survey,
                                       const std::vector<int64_t>& counts) {
  SampledText text;
  SplitSurvey again;
  const std::vector<int64_t> usable = survey.usable();
  std::vector<int64_t> seen(split.pairs.size(), 0);
  const auto visit = [&](size_t pair, const ParallelLine& line) {
    const auto until = [&](int64_t lines) {  // how many are taken of the first `lines`, rounded up
      return (lines * counts[pair] + usable[pair] - 1) / usable[pair];
    };
    const int64_t copies = until(seen[pair] + 1) - until(seen[pair]);
    ++seen[pair];
    for (int64_t k = 0; k < copies; ++k) {
      if (!options.monolingual) text.source.push_back(line.source);
      text.target.push_back(line.target);
    }
    return absl::OkStatus();
  };
  HADAL_RETURN_IF_ERROR(ForEachKept("sampling", split, options, survey.dropped, again, visit));
  return text;
}

absl::StatusOr<WrittenSplit> WriteSplit(const Split& split, const PrepareOptions& options, const SplitSurvey& survey,
                                        const SavedVocabulary& source, const SavedVocabulary& target, TextCodec& codec,
                                        const SpecialTokens& special) {
  const TextForm& form = special.form;
  HADAL_ASSIGN_OR_RETURN(const FeatureManifest features, FeaturesOf(split, options));
  CorpusWriterOptions writer_options = {
      .prefix = JoinPath(options.output, split.name),
      .source_vocabulary = options.monolingual ? VocabularyReference() : source.reference(),
      .target_vocabulary = target.reference(),
      .mask_token = special.mask,
      .special_tokens = special.all,
      .unknown_token = special.unknown,
      .corpora = CorpusNames(split.pairs),
      .form = form,
      .inputs = {.tags = ToWord(kLanguageTags, options.tags),
                 .frame_width = features.frame_width,
                 .sample_rate = features.sample_rate,
                 .cmvn = features.cmvn}};
  HADAL_ASSIGN_OR_RETURN(CorpusWriter writer, CorpusWriter::Create(std::move(writer_options)));
  WrittenSplit written = {.texts = survey.texts};
  SplitSurvey again;
  LineEncoder lines(options.monolingual ? nullptr : &source.vocabulary, target.vocabulary, codec, options.threads,
                    split.pairs, special.mask >= 0);
  std::optional<FeatureReader> frames;
  size_t frames_of = split.pairs.size();
  BlockCutter blocks(form, writer);
  const auto write = [&]() -> absl::Status {
    HADAL_ASSIGN_OR_RETURN(const std::span<EncodedLine> encoded, lines.Encode());
    for (EncodedLine& line : encoded) {
      const auto text = static_cast<size_t>(line.sample.corpus_id);
      const TextPair& pair = split.pairs[text];
      if (!form.reserved_ids) RemoveEnds(form, line.sample.target);
      HADAL_ASSIGN_OR_RETURN(const bool keep, KeepTokens(PlaceOf(pair, line.number), line.sample, split.training,
                                                         options, written.texts[text]));
      if (!keep) continue;
      if (form.block > 0) {
        HADAL_RETURN_IF_ERROR(blocks.Add(line.sample.corpus_id, line.sample.target));
        continue;
      }
      AddTags(pair.direction, options.tags, source.vocabulary, target.vocabulary, line.sample);
      SampleView sample = line.sample.view();
      sample.frame_width = features.frame_width;
      if (features.frame_width > 0) {
        if (std::exchange(frames_of, text) != text) {
          HADAL_ASSIGN_OR_RETURN(frames, FeatureReader::Open(pair.features));
        }
        HADAL_ASSIGN_OR_RETURN(sample.frames, frames->Frames(line.number));
      }
      HADAL_RETURN_IF_ERROR(writer.Add(sample));
    }
    return absl::OkStatus();
  };
  const auto collect = [&](size_t pair, const ParallelLine& line) {
    lines.Add(static_cast<int32_t>(pair), line);
    return lines.full() ? write() : absl::OkStatus();
  };
  HADAL_RETURN_IF_ERROR(ForEachKept("encoding", split, options, survey.dropped, again, collect));
  HADAL_RETURN_IF_ERROR(write());
  HADAL_RETURN_IF_ERROR(blocks.Finish());
  written.short_blocks = blocks.short_blocks();
  // If too little is left, no manifest is written.
  HADAL_RETURN_IF_ERROR(
      CheckSkipped(split.name, split.first_file(), survey.lines, Total(written.texts).skipped, options));
  HADAL_ASSIGN_OR_RETURN(written.manifest, writer.Finish());
  return written;
}

LineEncoder::LineEncoder(const Vocabulary* source, const Vocabulary& target, TextCodec& codec, int threads,
                         std::span<const TextPair> texts, bool alone)
    : source_(source),
      target_(target),
      codec_(codec),
      threads_(threads > 0 ? threads : ProcessCpus()),
      pairs_(texts),
      alone_(alone) {}

void LineEncoder::Add(int32_t corpus_id, const ParallelLine& line) {
  if (size_ == texts_.size()) {
    texts_.emplace_back();
    lines_.emplace_back();
  }
  texts_[size_].source = line.source;
  texts_[size_].target = line.target;
  texts_[size_].has_ids = line.has_ids;
  lines_[size_].number = line.number;
  lines_[size_].sample.corpus_id = corpus_id;
  ++size_;
  bytes_ += line.source.size() + line.target.size();
}

absl::Status LineEncoder::EncodeElsewhere() {
  std::vector<std::string> texts;
  for (size_t i = 0; i < size_; ++i) {
    if (!texts_[i].has_ids) texts.push_back(texts_[i].target);
  }
  absl::StatusOr<std::vector<std::vector<int32_t>>> lists = codec_.EncodeAll(texts, alone_);
  if (!lists.ok() && !absl::IsInvalidArgument(lists.status())) return lists.status();
  for (size_t i = 0, next = 0; i < size_; ++i) {
    Sample& sample = lines_[i].sample;
    if (lists.ok() && !texts_[i].has_ids) {
      sample.target = std::move((*lists)[next++]);
      continue;
    }
    // Of texts that cannot be encoded together, finds the one that cannot.
    HADAL_ASSIGN_OR_RETURN(
        sample.target,
        codec_.Encode({.number = lines_[i].number, .target = texts_[i].target, .has_ids = texts_[i].has_ids},
                      pairs_[static_cast<size_t>(sample.corpus_id)].target, alone_));
  }
  return lists.status();
}

absl::StatusOr<std::span<EncodedLine>> LineEncoder::Encode() {
  constexpr size_t kTogether = 32;  // lines that a thread takes at a time
  if (target_.kind() == VocabularyKind::kTokenizer) {
    HADAL_RETURN_IF_ERROR(EncodeElsewhere());
  } else {
    std::atomic<size_t> next = 0;
    ThreadTeam::OfThisThread().Run(threads_, [&](int) {
      for (size_t begin = next.fetch_add(kTogether); begin < size_; begin = next.fetch_add(kTogether)) {
        for (size_t i = begin; i < std::min(begin + kTogether, size_); ++i) {
          Sample& sample = lines_[i].sample;
          if (source_ != nullptr) sample.source = source_->Encode(texts_[i].source);
          sample.target = target_.Encode(texts_[i].target);
          if (!alone_ || target_.kind() != VocabularyKind::kSentencePiece) continue;
          for (size_t t = 1; t < sample.target.size(); ++t) {
            if (!target_.Token(sample.target[t]).starts_with("\xE2\x96\x81")) sample.target[t] |= kContinuesWord;
          }
        }
      }
    });
  }
  bytes_ = 0;
  return std::span<EncodedLine>(lines_).first(std::exchange(size_, 0));
}

}  // namespace hadal
