// The command line of `hadal prepare` (tools/corpus/prepare.h).
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"
#include "tools/commands.h"
#include "tools/corpus/corpora_list.h"
#include "tools/corpus/prepare.h"
#include "tools/tool_exit_code.h"

namespace hadal {
namespace {

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
    return InvalidArgumentError(name, " takes pairs of files, SOURCE TARGET; the last (", paths.back(),
                                ") has no partner. For files that have both sides (tabs, TMX, JSON Lines) give "
                                "--direction de-en; for plain text --monolingual.");
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
    return InvalidArgumentError(arguments.options.list, arguments.opus, " has no training text");
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
  return InvalidArgumentError(given, " is given for one side only; give ", missing,
                              " as well, or --vocab FILE for one vocabulary for both sides");
}

void AddDocumentOptions(Command command, PrepareOptions& options) {
  command.AddOption("--text-field NAME", options.text_field, "Field of JSON Lines that is the document").ShowDefault();
  command
      .AddOption("--block N", options.block,
                 "Cut the stream of documents into samples of N tokens; the last one of a file may be shorter")
      .InRange(1, 1 << 20);
  command.AddFlag("--document-mask", options.document_mask,
                  "With --block: attention and positions restart at each document");
}

void AddTextOptions(Command command, PrepareArguments& arguments) {
  std::vector<CommandOption> files;
  const auto add = [&](const char* name, std::vector<std::string>& paths, const char* description) {
    files.push_back(command.AddOption(absl::StrCat(name, " SOURCE TARGET"), paths, description));
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
          "--mask-token [TOKEN]", [&arguments](const std::string& token) { arguments.options.mask_token = token; },
          "With --monolingual, for encoders alone: the vocabulary gets <mask>, or TOKEN is the mask of the --tokenizer")
      .MayLackValue();
  files.push_back(command.AddFlag("--features", arguments.options.features,
                                  "Speech: each PREFIX is of features that speech_features.py wrote"));
  files.push_back(command.AddOption("--direction SOURCE-TARGET", arguments.direction,
                                    "Languages of files that have both sides, as de-en: each FILE has two columns with "
                                    "a tab, or is TMX or JSON Lines"));
  files[files.size() - 1].Excludes(files[files.size() - 2]).Excludes(files[files.size() - 3]);  // plain text, speech
  CommandOption list = command.AddOption("--list FILE", arguments.options.list,
                                         "Texts of many directions: a file of configs/corpora.proto");
  CommandOption opus =
      command.AddOption("--opus DIR", arguments.opus, "Texts of many directions: a folder laid out as OPUS-100");
  list.Excludes(opus);
  for (CommandOption other : files) {
    list.Excludes(other);
    opus.Excludes(other);
  }
  AddTagsOption(command, arguments.options.tags, "none");
  command
      .AddOption("--reserve-tags N", arguments.options.reserved_tags,
                 "With --tags: ids for N more languages, which a later corpus with this --vocab may add without "
                 "growing the model")
      .InRange(0, 10000);
}

// Adds the options for existing vocabularies, and returns them.
std::vector<CommandOption> AddExistingVocabularies(Command command, PrepareOptions& options) {
  const CommandOption both = command.AddSetter<std::string>(
      "--vocab FILE",
      [&options](const std::string& path) { options.source_vocabulary = options.target_vocabulary = path; },
      "Existing vocabulary for both sides: a SentencePiece model or a fairseq dict.txt");
  const CommandOption source =
      command.AddOption("--source-vocab FILE", options.source_vocabulary, "Existing vocabulary for the source");
  const CommandOption target =
      command.AddOption("--target-vocab FILE", options.target_vocabulary, "Existing vocabulary for the target");
  CommandOption tokenizer =
      command.AddOption("--tokenizer FILE", options.tokenizer,
                        "Existing vocabulary for plain text: a tokenizer.json, read by the Python package tokenizers");
  for (CommandOption option : {both, source, target}) tokenizer.Excludes(option);
  command.AddOption("--end-token TOKEN", options.end_token,
                    "Token of the --tokenizer that ends a document (default: that of tokenizer_config.json beside it)");
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
      command.AddNumber("--character-coverage", options.training.character_coverage, "Share of characters to keep",
                        0.98, 1.0),
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
                  "Leave out training pairs that repeat an earlier one of their direction");
  command.AddFlag("--drop-test-overlap", options.drop_test_overlap,
                  "Leave out training pairs that the direction's validation or test text has");
  command
      .AddOption("--max-length-ratio R", options.max_length_ratio,
                 "Leave out training pairs of which one side has more than R times the other's tokens")
      .InRange(1.0, 1e9);
  command.AddNumber("--max-skipped", options.most_skipped, "Limit for the skipped share of a text's lines", 0.0, 1.0);
}

}  // namespace

void AddPrepareCommand(Command app, int& exit_code) {
  Command command = app.AddCommand("prepare", "Convert parallel or plain text to a vocabulary and token corpora");
  auto arguments = std::make_shared<PrepareArguments>();
  PrepareOptions& options = arguments->options;
  AddTextOptions(command, *arguments);
  AddDocumentOptions(command, options);
  command.AddOption("-o,--out DIR", options.output, "Output folder").Required();
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
