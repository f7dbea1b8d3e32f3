#include "tools/corpus/prepare.h"

#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
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
#include "tools/corpus/corpora_list.h"
#include "tools/corpus/feature_reader.h"
#include "tools/corpus/prepare_corpus.h"
#include "tools/corpus/text_codec.h"
#include "tools/corpus/text_lines.h"
#include "tools/output/human_units.h"
#include "tools/tool_exit_code.h"

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
    if (is_fault) return absl::InvalidArgumentError(text);
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
      return absl::InvalidArgumentError(absl::StrCat(pair.features, " has ", DescribeFeatures(features.inputs()), ", ",
                                                     first_prefix, " has ", DescribeFeatures(first.inputs()),
                                                     "; make all features with the same options"));
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
      return absl::InvalidArgumentError(absl::StrCat(
          pair.target, " is named as Megatron-LM's token files are; ",
          options.mask_token ? "encoders alone (--mask-token) read text, for ids do not say where words begin"
                             : "give the tokenizer.json of its ids as --tokenizer"));
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
        "warning: the source equals the target in %.0f%% of the training pairs; are these the right "
        "files?\n",
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

// Texts of several target languages without tags: nothing says which is wanted.
void WarnOfDirections(const Split& train, std::ostream& out) {
  std::map<std::string, std::set<std::string>> targets;  // of each source language
  for (const TextPair& pair : train.pairs) targets[pair.direction.source].insert(pair.direction.target);
  for (const auto& [source, languages] : targets) {
    if (languages.size() < 2) continue;
    out << "warning: text in " << source << " is translated to " << absl::StrJoin(languages, ", ")
        << ", and without --tags a model cannot know which is meant\n";
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

// The command line's paths, before it is known whether files come in pairs.
struct PrepareArguments {
  PrepareOptions options;
  std::vector<std::string> train, valid, test;  // paths
  std::string opus, direction;
};

// Files of both sides, in one direction.
absl::StatusOr<std::vector<TextPair>> OneFileTexts(const std::vector<std::string>& paths,
                                                   const std::string& direction) {
  std::vector<TextPair> pairs;
  for (const std::string& path : paths) {
    TextPair& pair = pairs.emplace_back(TextPair{.source = path, .target = path, .one_file = true});
    HADAL_ASSIGN_OR_RETURN(pair.direction, ParseDirection(direction));
    if (paths.size() > 1) pair.domain = BaseName(path);
  }
  HADAL_RETURN_IF_ERROR(CheckCorpusNames(pairs));
  return pairs;
}

// `--NAME SOURCE TARGET …`, with a direction `--NAME FILE …`, as for plain text, for speech `--NAME PREFIX …`.
absl::StatusOr<std::vector<TextPair>> PairUp(const char* name, const std::vector<std::string>& paths,
                                             const std::string& direction, const PrepareOptions& options) {
  if (!direction.empty()) return OneFileTexts(paths, direction);
  std::vector<TextPair> pairs;
  if (options.features) {
    for (const std::string& path : paths) pairs.push_back({.target = path + ".txt", .features = path});
    return pairs;
  }
  if (options.monolingual) {
    for (const std::string& path : paths) {
      pairs.push_back({.target = path, .text_field = options.text_field, .blank_lines = options.block > 0});
    }
    return pairs;
  }
  if (paths.size() % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " takes pairs of files, SOURCE TARGET; the last (", paths.back(),
                     ") has no partner. For files that have both sides (tabs, TMX, "
                     "JSON Lines) give --direction de-en; for plain text --monolingual."));
  }
  for (size_t i = 0; i < paths.size(); i += 2) pairs.push_back({paths[i], paths[i + 1]});
  return pairs;
}

absl::Status FindTexts(PrepareArguments& arguments) {
  PrepareOptions& options = arguments.options;
  options.monolingual |= options.features;
  if (!arguments.options.list.empty() || !arguments.opus.empty()) {
    HADAL_ASSIGN_OR_RETURN(TextSplits splits, arguments.opus.empty() ? ReadCorporaList(arguments.options.list)
                                                                     : FindOpusTexts(arguments.opus));
    options.train = std::move(splits.train);
    options.valid = std::move(splits.valid);
    options.test = std::move(splits.test);
    if (!options.train.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(arguments.options.list, arguments.opus, " has no training text"));
  }
  HADAL_ASSIGN_OR_RETURN(options.train, PairUp("--train", arguments.train, arguments.direction, options));
  HADAL_ASSIGN_OR_RETURN(options.valid, PairUp("--valid", arguments.valid, arguments.direction, options));
  HADAL_ASSIGN_OR_RETURN(options.test, PairUp("--test", arguments.test, arguments.direction, options));
  return absl::OkStatus();
}

// Rejects a vocabulary for one side alone: it would be used for the other side too, which is not intended.
absl::Status CheckBothSidesGiven(const PrepareOptions& options) {
  if (options.monolingual || options.source_vocabulary.empty() == options.target_vocabulary.empty()) {
    return absl::OkStatus();
  }
  const auto [given, missing] = options.target_vocabulary.empty() ? std::pair("--source-vocab", "--target-vocab")
                                                                  : std::pair("--target-vocab", "--source-vocab");
  return absl::InvalidArgumentError(absl::StrCat(given, " is given for one side only; give ", missing,
                                                 " as well, or --vocab FILE for one vocabulary for both sides"));
}

void AddDocumentOptions(Command command, PrepareOptions& options) {
  command.AddOption("--text-field", options.text_field, "Field of JSON Lines that is the document")
      .ValueName("NAME")
      .ShowDefault();
  command
      .AddOption("--block", options.block,
                 "Cut the stream of documents into samples of N tokens; the last one of a file may be shorter")
      .InRange(1, 1 << 20)
      .ValueName("N");
  command.AddFlag("--document-mask", options.document_mask,
                  "With --block: attention and positions begin anew at each document");
}

void AddTextOptions(Command command, PrepareArguments& arguments) {
  std::vector<CommandOption> files;
  const auto add = [&](const char* name, std::vector<std::string>& paths, const char* description) {
    files.push_back(command.AddOption(name, paths, description).ValueName("SOURCE TARGET"));
  };
  add("--train", arguments.train, "Training text: two files, line by line translations; may be repeated");
  add("--valid", arguments.valid, "Validation text");
  add("--test", arguments.test, "Test text");
  files.push_back(
      command.AddFlag("--monolingual", arguments.options.monolingual,
                      "Text for language models, FILE after FILE: JSON Lines, Megatron-LM's PREFIX.bin, or plain text, "
                      "one sentence or document per line, with --block blank lines between documents"));
  command
      .AddSetter<std::string>(
          "--mask-token", [&arguments](const std::string& token) { arguments.options.mask_token = token; },
          "With --monolingual, for encoders alone: the vocabulary gets <mask>, or TOKEN is the mask of the --tokenizer")
      .ValueName("[TOKEN]")
      .MayLackValue();
  files.push_back(command.AddFlag("--features", arguments.options.features,
                                  "Speech: each PREFIX is of features that speech_features.py wrote"));
  files.push_back(command
                      .AddOption("--direction", arguments.direction,
                                 "Languages of files that have both sides, as de-en: each FILE has two columns with a "
                                 "tab, or is TMX or JSON Lines")
                      .ValueName("SOURCE-TARGET"));
  files[files.size() - 1].Excludes(files[files.size() - 2]).Excludes(files[files.size() - 3]);  // plain text, speech
  CommandOption list =
      command.AddOption("--list", arguments.options.list, "Texts of many directions: a file of configs/corpora.proto");
  CommandOption opus =
      command.AddOption("--opus", arguments.opus, "Texts of many directions: a folder laid out as OPUS-100");
  list.ValueName("FILE").Excludes(opus);
  opus.ValueName("DIR");
  for (CommandOption other : files) {
    list.Excludes(other);
    opus.Excludes(other);
  }
  AddTagsOption(command, arguments.options.tags, "none");
  command
      .AddOption("--reserve-tags", arguments.options.reserved_tags,
                 "With --tags: ids for so many languages more, which a later corpus with this --vocab may add without "
                 "growing the model")
      .InRange(0, 10000)
      .ValueName("N");
}

// Adds the options for existing vocabularies, and returns them.
std::vector<CommandOption> AddExistingVocabularies(Command command, PrepareOptions& options) {
  const CommandOption both = command.AddSetter<std::string>(
      "--vocab", [&options](const std::string& path) { options.source_vocabulary = options.target_vocabulary = path; },
      "Existing vocabulary for both sides: a SentencePiece model or a fairseq dict.txt");
  const CommandOption source =
      command.AddOption("--source-vocab", options.source_vocabulary, "Existing vocabulary for the source");
  const CommandOption target =
      command.AddOption("--target-vocab", options.target_vocabulary, "Existing vocabulary for the target");
  CommandOption tokenizer =
      command.AddOption("--tokenizer", options.tokenizer,
                        "Existing vocabulary for plain text: a tokenizer.json, read by the Python package tokenizers");
  for (CommandOption option : {both, source, target, tokenizer}) option.ValueName("FILE");
  for (CommandOption option : {both, source, target}) tokenizer.Excludes(option);
  command
      .AddOption("--end-token", options.end_token,
                 "Token of the --tokenizer that ends a document (default: that of tokenizer_config.json beside it)")
      .ValueName("TOKEN");
  return {both, source, target, tokenizer};
}

// Adds the options for training vocabularies, and returns them.
std::vector<CommandOption> AddVocabularyTraining(Command command, PrepareOptions& options) {
  return {
      command.AddNumber("--vocab-size", options.training.size,
                        "Size of the trained vocabulary, with 4 special ids; words: at most, 0 for all", 0, 1 << 24),
      command.AddChoice<PieceAlgorithm>(
          "--vocab-type", options.training.algorithm, "Kind of the trained vocabulary (default: bpe)",
          {{"bpe", PieceAlgorithm::kBpe}, {"unigram", PieceAlgorithm::kUnigram}, {"word", PieceAlgorithm::kWord}}),
      command.AddNumber("--vocab-min-count", options.training.least_count,
                        "With --vocab-type word: rarer words are unknown", 1, 1 << 30),
      command.AddFlag("--separate", options.separate, "Train one vocabulary per side instead of a shared one"),
      command.AddNumber("--character-coverage", options.training.character_coverage, "Share of characters to keep", 0.0,
                        1.0),
      command
          .AddOption("--normalization", options.training.normalization,
                     "SentencePiece's rule; identity changes nothing")
          .ShowDefault(),
      command.AddNumber("--vocab-pairs", options.vocabulary_pairs, "Most pairs to train the vocabulary on", int64_t{1},
                        int64_t{1} << 40),
      command.AddNumber("--vocab-temperature", options.vocabulary_temperature,
                        "Temperature T: texts are drawn in proportion to pairs^(1/T)", 0.001, 1e9)};
}

void AddVocabularyOptions(Command command, PrepareOptions& options) {
  const std::vector<CommandOption> existing = AddExistingVocabularies(command, options);
  const std::vector<CommandOption> training = AddVocabularyTraining(command, options);
  for (CommandOption given : existing) {
    for (CommandOption trained : training) given.Excludes(trained);
  }
}

void AddFilterOptions(Command command, PrepareOptions& options) {
  const auto add = [&](const char* name, BadLine& choice, const char* description) {
    command.AddChoice<BadLine>(name, choice, description, {{"error", BadLine::kError}, {"skip", BadLine::kSkip}});
  };
  command.AddNumber("--max-tokens", options.max_tokens, "Longest side, in tokens, without language tags", int64_t{1},
                    int64_t{1} << 24);
  add("--on-empty", options.on_empty, "A side without text (default: skip)");
  add("--on-long", options.on_long, "A side over --max-tokens (default: skip)");
  add("--on-invalid", options.on_invalid, "A line that is not UTF-8 or broken JSON (default: error)");
  command.AddFlag("--drop-duplicates", options.drop_duplicates,
                  "Leave out training pairs that the direction's training text has had before");
  command.AddFlag("--drop-test-overlap", options.drop_test_overlap,
                  "Leave out training pairs that the direction's validation or test text has");
  command
      .AddOption("--max-length-ratio", options.max_length_ratio,
                 "Leave out training pairs of which one side has more than R times the other's tokens")
      .InRange(1.0, 1e9)
      .ValueName("R");
  command.AddNumber("--max-skipped", options.most_skipped, "Limit for the skipped share of a text's lines", 0.0, 1.0);
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
        return absl::InvalidArgumentError(absl::StrCat("the training text contains the word ", std::string(kMaskToken),
                                                       ", which --mask-token reserves; remove it from the text"));
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

void AddPrepareCommand(Command app, int& exit_code) {
  Command command = app.AddCommand("prepare", "Convert parallel or plain text to a vocabulary and token corpora");
  auto arguments = std::make_shared<PrepareArguments>();
  PrepareOptions& options = arguments->options;
  AddTextOptions(command, *arguments);
  AddDocumentOptions(command, options);
  command.AddOption("-o,--out", options.output, "Output folder").Required().ValueName("DIR");
  AddVocabularyOptions(command, options);
  AddFilterOptions(command, options);
  command.AddOption("--threads", options.threads, "Threads for encoding (default: one per CPU)").InRange(0, 1024);
  command.AddFlag("--overwrite", options.overwrite, "Replace corpora in the output folder");
  command.Runs([arguments, &exit_code] {
    absl::Status status = FindTexts(*arguments);
    status.Update(CheckBothSidesGiven(arguments->options));
    if (status.ok()) status = RunPrepare(arguments->options, std::cout);
    exit_code = EndTool("prepare", status);
  });
}

}  // namespace hadal
