#include "tools/corpus/prepare.h"

#include <algorithm>
#include <map>
#include <ostream>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/clock.h"
#include "runtime/data/corpus.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"
#include "runtime/text.h"
#include "tools/corpus/feature_reader.h"
#include "tools/corpus/prepare_corpus.h"
#include "tools/corpus/text_codec.h"
#include "tools/corpus/text_lines.h"
#include "tools/output/human_units.h"

namespace hadal {
namespace {

std::vector<Split> SplitsOf(const PrepareOptions& options) {
  std::vector<Split> splits = {{.name = "train", .pairs = options.train, .training = true}};
  if (!options.valid.empty()) splits.push_back({"valid", options.valid});
  if (!options.test.empty()) splits.push_back({"test", options.test});
  return splits;
}

absl::Status CheckOptions(const PrepareOptions& options) {
  const std::pair<bool, std::string> faults[] = {
      {options.train.empty(), absl::StrCat("no training ", options.features      ? "features; give --train PREFIX"
                                                           : options.monolingual ? "text; give --train FILE"
                                                                                 : "text; give --train SOURCE TARGET")},
      {options.output.empty(), "no output folder; give --out DIR"},
      {options.reserved_tags > 0 && options.tags == LanguageTags::kNone,
       "--reserve-tags reserves ids of language tags, and --tags is none; give --tags"},
      {options.mask_token && (!options.monolingual || options.features),
       "--mask-token is for encoders alone, which read plain text; give --monolingual"},
      {options.tokenizer.empty() && !options.mask_token.value_or("").empty(),
       absl::StrCat("--mask-token ", options.mask_token.value_or(""),
                    " names a token of a --tokenizer; give that, or no name")},
      {options.monolingual && (options.separate || options.source_vocabulary != options.target_vocabulary),
       "plain text has one side and one vocabulary; omit --separate, --source-vocab and --target-vocab"},
      {!options.monolingual && (options.block > 0 || !options.tokenizer.empty()),
       "--block and --tokenizer are for plain text; give --monolingual"},
      {options.document_mask && options.block == 0, "--document-mask cuts blocks at documents; give --block N"},
      {options.features && options.block + options.tokenizer.size() > 0,
       "transcripts are sentences; omit --block and --tokenizer with --features"},
      {!options.end_token.empty() && options.tokenizer.empty(),
       "--end-token names a token of a tokenizer.json; give --tokenizer"},
      {options.drop_test_overlap && options.valid.empty() && options.test.empty(),
       "--drop-test-overlap compares training text with validation and test text; give --valid or --test, or omit it"},
      {options.monolingual && options.max_length_ratio, "plain text has one side; omit --max-length-ratio"},
      {options.features && (options.drop_duplicates || options.drop_test_overlap),
       "equal transcripts are of different recordings; omit --drop-duplicates and --drop-test-overlap with "
       "--features"}};
  for (const auto& [is_fault, text] : faults) {
    if (is_fault) return InvalidArgumentError(text);
  }
  return absl::OkStatus();
}

// Reads all features once: a model needs the same kind everywhere.
absl::Status CheckAllFeatures(const std::vector<Split>& splits) {
  std::string first_prefix;
  FeatureManifest first;
  for (const Split& split : splits) {
    for (const TextPair& pair : split.pairs) {
      HADAL_ASSIGN_OR_RETURN(const FeatureManifest features, CheckFeatures(pair.features));
      if (first_prefix.empty()) {
        first_prefix = pair.features;
        first = features;
      }
      if (features.inputs() == first.inputs()) continue;
      return InvalidArgumentError(pair.features, " has ", DescribeFeatures(features.inputs()), ", ", first_prefix,
                                  " has ", DescribeFeatures(first.inputs()),
                                  "; make all features with the same options");
    }
  }
  return absl::OkStatus();
}

// REQUIRES: plain text, which has one vocabulary.
absl::Status AddMaskTokenTo(CorpusVocabularies& vocabularies) {
  HADAL_ASSIGN_OR_RETURN(vocabularies.target, AddMaskToken(vocabularies.target));
  vocabularies.source = vocabularies.target;
  return absl::OkStatus();
}

// Checks that need no text: a folder in use, missing files, an invalid vocabulary.
absl::StatusOr<std::optional<CorpusVocabularies>> CheckSurroundings(const std::vector<Split>& splits,
                                                                    const PrepareOptions& options) {
  for (const Split& split : splits) {
    HADAL_RETURN_IF_ERROR(CheckReadable(split));
    for (const TextPair& pair : split.pairs) {
      if (!pair.source.empty() || !IsTokenFile(pair.target)) continue;
      if (!options.tokenizer.empty() && !options.mask_token) continue;
      return InvalidArgumentError(pair.target, " is named as Megatron-LM's token files are; ",
                                  options.mask_token
                                      ? "encoders alone (--mask-token) read text, for ids do not say where words begin"
                                      : "give the tokenizer.json of its ids as --tokenizer");
    }
  }
  if (options.features) HADAL_RETURN_IF_ERROR(CheckAllFeatures(splits));
  HADAL_ASSIGN_OR_RETURN(std::optional<CorpusVocabularies> given, GivenVocabularies(options));
  if (options.tags != LanguageTags::kNone) {
    HADAL_RETURN_IF_ERROR(CheckLanguages(splits));
    if (given) HADAL_RETURN_IF_ERROR(AddTagsOf(splits, options.reserved_tags, *given));
  }
  if (given && options.mask_token && options.tokenizer.empty()) HADAL_RETURN_IF_ERROR(AddMaskTokenTo(*given));
  HADAL_RETURN_IF_ERROR(PrepareOutput::CheckFree(options.output, options.overwrite, given ? &*given : nullptr));
  std::vector<std::string> inputs = {options.list};
  for (const Split& split : splits) {
    for (const TextPair& pair : split.pairs) inputs.insert(inputs.end(), {pair.source, pair.target});
  }
  if (given) {  // with tags it is another one
    const auto add = [&](const std::string& path, const Vocabulary& vocabulary) {
      if (ReadFile(path, std::ssize(vocabulary.contents())).value_or("") != vocabulary.contents())
        inputs.push_back(path);
    };
    add(options.source_vocabulary, given->source);
    add(options.target_vocabulary, given->target);
    add(options.tokenizer, given->target);
  }
  const bool counts_words = options.training.algorithm == PieceAlgorithm::kWord;
  const std::string_view extension = given ? given->target.extension() : counts_words ? ".txt" : ".model";
  HADAL_RETURN_IF_ERROR(PrepareOutput::CheckInputs(options.output, extension, inputs));
  return given;
}

// What in the training text makes results mean less than they seem to.
void WarnOfTraining(const TextFindings& train, size_t held_out, const PrepareOptions& options, std::ostream& out) {
  constexpr double kManyEqual = 0.1, kManyHeldOut = 0.01;
  const auto usable = static_cast<double>(train.lines - train.skipped.invalid - train.skipped.empty);
  const char* lines = options.units();
  if (static_cast<double>(train.equal_sides) > kManyEqual * usable) {
    out << absl::StrFormat(
        "warning: the source equals the target in %.0f%% of the training pairs; are these the right files?\n",
        100 * static_cast<double>(train.equal_sides) / usable);
  }
  // Two speakers may say the same.
  if (!options.features && !options.drop_test_overlap &&
      static_cast<double>(train.held_out) > kManyHeldOut * static_cast<double>(held_out)) {
    out << "warning: " << HumanCount(train.held_out) << " training " << lines << " are also validation or test "
        << lines << "; their loss and BLEU will not show how the model does on new text\n";
  }
}

// The first pass over all text.  [splits]
absl::StatusOr<std::vector<SplitSurvey>> SurveyAll(const std::vector<Split>& splits, const PrepareOptions& options,
                                                   std::ostream& out) {
  TextHashes held_out;
  std::vector<SplitSurvey> surveys(splits.size());
  for (size_t i = splits.size(); i-- > 0;) {  // training text last
    HADAL_ASSIGN_OR_RETURN(surveys[i], SurveySplit(splits[i], options, held_out));
    const SplitSurvey& survey = surveys[i];
    out << "read " << splits[i].name << ": " << HumanCount(survey.lines) << " "
        << (options.monolingual ? options.units() : "pairs of lines");
    if (survey.byte_order_marks > 0) out << ", byte order marks removed";
    if (survey.carriage_returns > 0) out << ", CRLF line ends removed";
    if (survey.more_columns > 0) {
      out << ", columns after the second ignored in " << HumanCount(survey.more_columns)
          << (survey.more_columns == 1 ? " line" : " lines");
    }
    out << std::endl;
    for (const std::string& oddity : survey.oddities) out << "warning: " << oddity << std::endl;
  }
  WarnOfTraining(Total(surveys[0].texts), held_out.size(), options, out);
  return surveys;
}

// Texts of several target languages without tags: nothing states which one a translation is for.
void WarnOfDirections(const Split& train, std::ostream& out) {
  std::map<std::string, std::set<std::string>> targets;  // of each source language
  for (const TextPair& pair : train.pairs) targets[pair.direction.source].insert(pair.direction.target);
  for (const auto& [source, languages] : targets) {
    if (languages.size() < 2) continue;
    out << "warning: text in " << source << " is translated to " << absl::StrJoin(languages, ", ")
        << ", and without --tags its input does not say which is meant\n";
    return;
  }
}

std::string UnknownShare(int64_t unknown, int64_t tokens) {
  if (unknown == 0) return "none unknown";
  return HumanValue(100.0 * static_cast<double>(unknown) / static_cast<double>(tokens), 2) + "% unknown";
}

void DescribeSplit(const Split& split, const WrittenSplit& written, const PrepareOptions& options, std::ostream& out) {
  const CorpusStatistics& statistics = written.manifest.statistics;
  const TextFindings total = Total(written.texts);
  out << "wrote " << split.name << ": " << HumanCount(written.manifest.samples);
  if (options.features) {
    out << " utterances; " << HumanCount(statistics.source_tokens) << " frames of " << written.manifest.frame_width
        << " features (longest " << statistics.longest_source << "), target " << HumanCount(statistics.target_tokens)
        << " tokens";
  } else if (options.block > 0) {
    out << " blocks of " << options.block << " tokens; kept " << HumanCount(written.short_blocks)
        << " shorter ones, the last of each file; " << HumanCount(statistics.target_tokens) << " tokens";
  } else if (options.monolingual) {
    out << " lines; " << HumanCount(statistics.target_tokens) << " tokens";
  } else {
    out << " pairs; source " << HumanCount(statistics.source_tokens) << " tokens (longest " << statistics.longest_source
        << ", " << UnknownShare(statistics.source_unknown, statistics.source_tokens) << "), target "
        << HumanCount(statistics.target_tokens);
  }
  out << " (longest " << statistics.longest_target << ", "
      << UnknownShare(statistics.target_unknown, statistics.target_tokens) << "); "
      << DescribeSkipped(total.skipped, total.lines, options) << std::endl;
  out << UnknownWarning("source", statistics.source_unknown, statistics.source_tokens)
      << UnknownWarning("target", statistics.target_unknown, statistics.target_tokens) << std::flush;
  const std::string warning = MostlySkipped(split.name, split.first_file(), total.lines, total.skipped, options);
  if (!warning.empty()) out << "warning: " << warning << std::endl;
}

void DescribeVocabularies(const PreparedVocabularies& vocabularies, const PrepareOptions& options, std::ostream& out) {
  const auto describe = [&](const char* use, const SavedVocabulary& saved) {
    out << use << ": " << HumanCount(saved.vocabulary.size()) << " ids, " << JoinPath(options.output, saved.file)
        << std::endl;
  };
  if (vocabularies.shared()) {
    describe(options.monolingual ? "vocabulary" : "shared vocabulary", vocabularies.source);
  } else {
    describe("source vocabulary", vocabularies.source);
    describe("target vocabulary", vocabularies.target);
  }
}

// Names what AddTagsOf has added to given vocabularies, and what it means for a model of theirs.
absl::Status DescribeAddedTags(const PreparedVocabularies& vocabularies, const PrepareOptions& options,
                               std::ostream& out) {
  HADAL_ASSIGN_OR_RETURN(const std::optional<CorpusVocabularies> given, GivenVocabularies(options));
  const Vocabulary& target = vocabularies.target.vocabulary;
  std::vector<std::string> added, taken;
  for (int32_t id = 0; id < target.size(); ++id) {
    const std::string name = absl::StrCat(Printable(target.Token(id)), " (id ", id, ")");
    if (id >= given->target.size()) added.push_back(name);
    if (id < given->target.size() && target.Token(id) != given->target.Token(id)) taken.push_back(name);
  }
  if (!taken.empty()) {
    out << "took reserved tags of the given vocabulary: " << absl::StrJoin(taken, ", ")
        << "; a model trained with it has their rows" << std::endl;
  }
  if (!added.empty()) {
    out << "added to the given vocabulary: " << absl::StrJoin(added, ", ")
        << "; hadal train --init-from gives a model trained with it new rows for them" << std::endl;
  }
  return absl::OkStatus();
}

// Whether most ids of a vocabulary that was trained on this text are too rare in it to be learnt. A rule of thumb.
// `frames`: the source tokens are frames.
void WarnOfRareIds(const PreparedVocabularies& vocabularies, const CorpusStatistics& train, bool frames,
                   std::ostream& out) {
  constexpr int64_t kFewPerId = 25, kEnoughPerId = 50, kLeastSize = 300;
  const auto warn = [&](int64_t tokens, int64_t ids) {
    if (tokens >= kFewPerId * ids) return;
    const int64_t size = std::max(kLeastSize, tokens / kEnoughPerId / 100 * 100);
    out << "warning: the training text has " << HumanCount(tokens) << " tokens for " << HumanCount(ids)
        << " ids: most ids are too rare to be learnt";
    if (size < ids) out << "; try --vocab-size " << size;
    out << std::endl;
  };
  if (vocabularies.shared()) {
    return warn((frames ? 0 : train.source_tokens) + train.target_tokens, vocabularies.source.vocabulary.size());
  }
  warn(train.source_tokens, vocabularies.source.vocabulary.size());
  warn(train.target_tokens, vocabularies.target.vocabulary.size());
}

}  // namespace

absl::Status RunPrepare(const PrepareOptions& options, std::ostream& out) {
  const double begin = MonotonicSeconds();
  HADAL_RETURN_IF_ERROR(CheckOptions(options));
  const std::vector<Split> splits = SplitsOf(options);
  HADAL_ASSIGN_OR_RETURN(std::optional<CorpusVocabularies> given, CheckSurroundings(splits, options));
  SpecialTokens special{.form = {.block = options.block, .document_mask = options.document_mask}};
  absl::StatusOr<TextCodec> codec;
  if (given) {
    codec = TextCodec::Open(given->target);
    HADAL_RETURN_IF_ERROR(codec.status());
    HADAL_RETURN_IF_ERROR(SetSpecialTokens(options, given->target, *codec, special));
  }
  HADAL_ASSIGN_OR_RETURN(const std::vector<SplitSurvey> surveys, SurveyAll(splits, options, out));
  HADAL_ASSIGN_OR_RETURN(PrepareOutput output,
                         PrepareOutput::Take(options.output, options.overwrite, given ? &*given : nullptr));
  PrepareOptions staged = options;
  staged.output = output.staging();
  if (options.tags == LanguageTags::kNone) WarnOfDirections(splits[0], out);
  const bool trained = !given;
  if (trained) {
    HADAL_ASSIGN_OR_RETURN(given, TrainVocabularies(options, splits[0], surveys[0], out));
    if (options.tags != LanguageTags::kNone) {
      HADAL_RETURN_IF_ERROR(AddTagsOf(splits, options.reserved_tags, *given));
    }
    if (options.mask_token) {
      if (given->target.Id(kMaskToken) != kUnknownToken) {
        return InvalidArgumentError("the training text contains the word ", std::string(kMaskToken),
                                    ", which --mask-token reserves; remove it from the text");
      }
      HADAL_RETURN_IF_ERROR(AddMaskTokenTo(*given));
    }
  }
  HADAL_ASSIGN_OR_RETURN(const PreparedVocabularies vocabularies, SaveVocabularies(*std::move(given), staged.output));
  DescribeVocabularies(vocabularies, options, out);
  if (trained) codec = TextCodec::Open(vocabularies.target.vocabulary);
  if (trained && options.mask_token) {
    HADAL_RETURN_IF_ERROR(SetSpecialTokens(options, vocabularies.target.vocabulary, *codec, special));
  }
  if (!trained && options.tags != LanguageTags::kNone) {
    HADAL_RETURN_IF_ERROR(DescribeAddedTags(vocabularies, options, out));
  }
  if (trained) HADAL_RETURN_IF_ERROR(WarnOfRewriting(splits[0], vocabularies.target.vocabulary, out));
  std::vector<CorpusManifest> manifests;
  std::vector<SplitFindings> findings;
  for (size_t i = 0; i < splits.size(); ++i) {
    HADAL_ASSIGN_OR_RETURN(WrittenSplit written, WriteSplit(splits[i], staged, surveys[i], vocabularies.source,
                                                            vocabularies.target, *codec, special));
    DescribeSplit(splits[i], written, options, out);
    if (trained && manifests.empty()) {
      WarnOfRareIds(vocabularies, written.manifest.statistics, options.features, out);
    }
    manifests.push_back(written.manifest);
    findings.push_back({splits[i].name, splits[i].training, std::move(written.texts)});
  }
  HADAL_RETURN_IF_ERROR(WriteNewFile(JoinPath(staged.output, kCleaningReport), CleaningJson(findings, options)));
  HADAL_RETURN_IF_ERROR(output.Commit(manifests));
  out << "cleaning report, also in " << JoinPath(options.output, kCleaningReport) << ":\n"
      << CleaningTable(findings, options);
  out << "done in " << HumanDuration(MonotonicSeconds() - begin) << "; train on it with the prefix "
      << JoinPath(options.output, "train") << std::endl;
  return absl::OkStatus();
}

}  // namespace hadal
