#include "tools/evaluate/evaluate.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <optional>
#include <ostream>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "pipeline/checkpoint/model_checkpoint.h"
#include "runtime/comm/collectives.h"
#include "runtime/crc32c.h"
#include "runtime/data/bleu.h"
#include "runtime/data/corpus.h"
#include "runtime/data/language_tags.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"
#include "tools/corpus/corpora_list.h"
#include "tools/corpus/parallel_text.h"
#include "tools/output/staged_output.h"
#include "tools/python_child.h"
#include "tools/tool_exit_code.h"
#include "tools/translate/leading_tokens.h"
#include "tools/translate/translate_options.h"

namespace hadal {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 30;  // of a file that is read whole
constexpr const char* kListName = "test_sets.json";

struct TestSet {
  std::string name;  // "en-de", "en-de domain"
  std::string stem;  // of its files
  Direction direction;
  int64_t segments = 0;
  int64_t empty_segments = 0;             // with a blank side
  std::optional<int64_t> training_pairs;  // of the direction, all domains; empty: the corpus is not known
  std::string key;                        // what a translation depends on
};

nlohmann::ordered_json ToJson(const TestSet& set) {
  nlohmann::ordered_json json = {
      {"name", set.name},  {"source", set.direction.source}, {"target", set.direction.target},
      {"files", set.stem}, {"segments", set.segments},       {"empty_segments", set.empty_segments}};
  for (const auto& entry : kBleuTokenizers) {
    if (entry.value == BleuTokenizerOf(set.direction.target)) json["tokenizer"] = entry.word;
  }
  if (set.training_pairs) json["training_pairs"] = *set.training_pairs;
  return json;
}

// "en-de domain" as a file name.
std::string StemOf(const std::string& name) {
  std::string stem = name;
  for (char& c : stem) {
    const bool is_ascii = static_cast<unsigned char>(c) < 0x80;
    if (is_ascii && !absl::ascii_isalnum(c) && c != '-' && c != '_') c = '.';
  }
  return stem;
}

class Evaluator {
 public:
  Evaluator(const EvaluateOptions& options, const TranslateStreams& streams) : options_(options), streams_(streams) {}

  // The checkpoint's directory, after Prepare.
  const std::string& checkpoint() const { return checkpoint_; }

  // Checks and copies all test sets.
  absl::Status Prepare() {
    HADAL_ASSIGN_OR_RETURN(const ModelCheckpoint checkpoint, ModelCheckpoint::Open(options_.checkpoint));
    checkpoint_ = checkpoint.directory();
    HADAL_ASSIGN_OR_RETURN(tags_, ChosenTags(checkpoint, options_.tags, /*has_direction=*/true));
    HADAL_ASSIGN_OR_RETURN(const std::string how, Fingerprint(checkpoint));
    HADAL_ASSIGN_OR_RETURN(const TextSplits splits,
                           options_.opus.empty() ? ReadCorporaList(options_.list) : FindOpusTexts(options_.opus));
    if (splits.test.empty()) {
      return InvalidArgumentError(options_.opus.empty() ? options_.list : options_.opus,
                                  " has no test sets; add test: [\"…\"]");
    }
    std::map<std::pair<std::string, std::string>, int64_t> pairs;
    if (!options_.train_corpus.empty()) {
      HADAL_ASSIGN_OR_RETURN(pairs, TrainingPairs());
    }
    std::set<std::string> stems;
    for (const TextPair& text : splits.test) {
      HADAL_RETURN_IF_ERROR(Named(text, FindDirectionTags(checkpoint, tags_, text.direction).status()));
      TestSet& set = sets_.emplace_back();
      set.name = CorpusName(text);
      set.stem = StemOf(set.name);
      set.direction = text.direction;
      if (!options_.train_corpus.empty()) set.training_pairs = pairs[{text.direction.source, text.direction.target}];
      if (!stems.insert(set.stem).second) {
        return InvalidArgumentError(set.name, ": another test set's files have this name, too: ", set.stem,
                                    "; choose another domain");
      }
    }
    const auto is_there = [&](const TestSet& set) {
      return PathExists(JoinPath(options_.against, absl::StrCat(set.stem, ".hypothesis")));
    };
    if (!options_.against.empty() && std::ranges::none_of(sets_, is_there)) {
      return InvalidArgumentError("--against ", options_.against, " has no translation of these test sets (",
                                  sets_[0].stem, ".hypothesis); give the --out of another hadal evaluate");
    }
    std::vector<std::string> inputs = {options_.list};
    for (const TextPair& text : splits.test) inputs.insert(inputs.end(), {text.source, text.target});
    HADAL_RETURN_IF_ERROR(OwnFolder(inputs));
    for (size_t i = 0; i < splits.test.size(); ++i) {
      HADAL_RETURN_IF_ERROR(Named(splits.test[i], Copy(splits.test[i], how, sets_[i])));
    }
    HADAL_RETURN_IF_ERROR(WriteList());
    return ToolStatus(CheckPyhadal("evaluate"), "nothing was translated, because it could not be scored");
  }

  // The next test set that is not translated yet; files the previous one's translation.
  absl::StatusOr<std::optional<TranslationJob>> Next() {
    if (translating_) {
      const TestSet& set = sets_[next_ - 1];
      HADAL_ASSIGN_OR_RETURN(const std::string key, KeyOf(set));
      HADAL_RETURN_IF_ERROR(ReplaceFile(PathOf(set.stem, ".key"), key, "new"));
    }
    for (; next_ < sets_.size(); ++next_) {
      const TestSet& set = sets_[next_];
      const absl::StatusOr<std::string> key = ReadFile(PathOf(set.stem, ".key"), 4096), wanted = KeyOf(set);
      if (key.ok() && wanted.ok() && *key == *wanted) {
        ++kept_;
        continue;
      }
      HADAL_RETURN_IF_ERROR(RemoveTree(PathOf(set.stem, ".key")));
      translating_ = true;
      streams_.log << set.name << ": " << set.segments << " segments" << std::endl;
      ++next_;
      return TranslationJob{.direction = absl::StrCat(set.direction.source, "-", set.direction.target),
                            .input = PathOf(set.stem, ".source"),
                            .output = PathOf(set.stem, ".hypothesis")};
    }
    return std::nullopt;
  }

  absl::Status Report() {
    if (kept_ > 0) streams_.log << kept_ << " test sets were translated before, by the same model and options\n";
    streams_.log << std::flush;
    std::vector<std::string> arguments = {options_.folder, "--pivot", options_.pivot};
    if (!options_.against.empty()) arguments.insert(arguments.end(), {"--against", options_.against});
    return ToolStatus(RunPyhadal("evaluate", arguments), absl::StrCat("the translations in ", options_.folder,
                                                                      " are kept; the same command then scores them"));
  }

 private:
  std::string PathOf(const std::string& stem, const char* kind) const {
    return JoinPath(options_.folder, absl::StrCat(stem, kind));
  }

  static absl::Status Named(const TextPair& text, const absl::Status& status) {
    return status.ok() ? status : absl::Status(status.code(), absl::StrCat(CorpusName(text), ": ", status.message()));
  }

  // Names what a translation depends on besides its source; the decoder's number grows where its results change.
  absl::StatusOr<std::string> Fingerprint(const ModelCheckpoint& checkpoint) const {
    HADAL_ASSIGN_OR_RETURN(const BeamOptions beam, ChosenBeam(options_.beam, 1, checkpoint));
    uint32_t weights = 0;
    for (const WrittenFile& file : checkpoint.reader().manifest().files) {
      weights = Crc32c(&file.crc32c, sizeof(file.crc32c), weights);
    }
    return absl::StrFormat(
        "decoder 2 model %016x weights %08x beam %d penalty %.17g length %.17g %.17g %d ngram %d longest %d on-long %d "
        "join %d "
        "tags %d",
        checkpoint.reader().manifest().plan_hash, weights, beam.beam, beam.length_penalty, beam.max_length_a,
        beam.max_length_b, beam.min_length, beam.no_repeat_ngram, options_.decoder.longest_source,
        static_cast<int>(options_.over_long), static_cast<int>(options_.joining), static_cast<int>(tags_));
  }

  // The names of the files that this evaluation writes into the folder.
  std::vector<std::string> Written() const {
    std::vector<std::string> names = {kListName, "report.md", "report.html", "evaluation.json"};
    for (const char* table : {"means", "test_sets"}) {
      for (const char* kind : {".csv", ".tex"}) names.push_back(absl::StrCat(table, kind));
    }
    for (const TestSet& set : sets_) {
      for (const char* kind : {".source", ".reference", ".hypothesis", ".key"}) names.push_back(set.stem + kind);
    }
    return names;
  }

  // Makes the folder, locks it, and checks that what it replaces there is an earlier evaluation's and no input.
  absl::Status OwnFolder(const std::vector<std::string>& inputs) {
    HADAL_ASSIGN_OR_RETURN(OutputFolder lock, OutputFolder::Take(options_.folder));
    lock_.emplace(std::move(lock));
    const std::string list = JoinPath(options_.folder, kListName);
    if (PathExists(list)) {
      HADAL_ASSIGN_OR_RETURN(const std::string text, ReadFile(list, kMostBytes));
      const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
      if (!json.is_object() || !json.contains("written") || !json["written"].is_array()) {
        return InvalidArgumentError(list, " is not hadal evaluate's; choose another --out");
      }
      for (const nlohmann::json& name : json["written"]) {
        if (name.is_string()) owned_.insert(name.get<std::string>());
      }
    }
    for (const std::string& name : Written()) {
      const std::string path = JoinPath(options_.folder, name);
      struct stat info;
      if (lstat(path.c_str(), &info) != 0) continue;
      HADAL_RETURN_IF_ERROR(CheckIsNoneOf(path, inputs));
      if (owned_.contains(name) && S_ISREG(info.st_mode)) continue;
      return InvalidArgumentError(path, " was not written by hadal evaluate; remove it, or choose another --out");
    }
    return WriteList();  // what is written from here on is this command's, also if it is interrupted
  }

  absl::Status WriteList() {
    nlohmann::ordered_json json = {{"checkpoint", checkpoint_}, {"test_sets", nlohmann::json::array()}};
    for (const TestSet& set : sets_) json["test_sets"].push_back(ToJson(set));
    for (const std::string& name : Written()) owned_.insert(name);
    json["written"] = owned_;
    return ReplaceFile(JoinPath(options_.folder, kListName),
                       json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n", "new");
  }

  // The key of the translation that is there.
  absl::StatusOr<std::string> KeyOf(const TestSet& set) const {
    HADAL_ASSIGN_OR_RETURN(const std::string text, ReadFile(PathOf(set.stem, ".hypothesis"), kMostBytes));
    return absl::StrFormat("%s hypothesis %08x\n", set.key, Crc32c(text.data(), text.size(), 0));
  }

  // Sentence pairs of each direction of the training corpus.
  absl::StatusOr<std::map<std::pair<std::string, std::string>, int64_t>> TrainingPairs() const {
    HADAL_ASSIGN_OR_RETURN(const Corpus corpus, Corpus::Open(options_.train_corpus));
    std::vector<int64_t> of_corpus(corpus.manifest().corpora.size());
    for (int64_t i = 0; i < corpus.size(); ++i) {
      const auto id = static_cast<size_t>(corpus.sample(i).corpus_id);
      if (id < of_corpus.size()) ++of_corpus[id];  // else the file is changing
    }
    HADAL_RETURN_IF_ERROR(corpus.CheckUnchanged());
    std::map<std::pair<std::string, std::string>, int64_t> pairs;
    for (size_t c = 0; c < of_corpus.size(); ++c) {
      const std::string& name = corpus.manifest().corpora[c];
      const absl::StatusOr<Direction> direction = ParseDirection(name.substr(0, name.find(' ')));
      if (!direction.ok()) {
        return InvalidArgumentError(
            "--train-corpus ", options_.train_corpus, ": its part \"", name,
            "\" names no direction; give a corpus that hadal prepare --list or --opus made, or leave the option out");
      }
      pairs[{direction->source, direction->target}] += of_corpus[c];
    }
    return pairs;
  }

  // Writes the test set's source and reference. `how`: what its translation depends on besides its source.
  absl::Status Copy(const TextPair& text, const std::string& how, TestSet& set) const {
    HADAL_ASSIGN_OR_RETURN(ParallelReader reader, ParallelReader::Open(text));
    std::string source, reference;
    ParallelLine line;
    while (true) {
      HADAL_ASSIGN_OR_RETURN(const bool more, reader.Next(line));
      if (!more) break;
      if (!line.invalid.empty()) return InvalidArgumentError(line.invalid);
      ++set.segments;
      set.empty_segments += line.empty ? 1 : 0;
      absl::StrAppend(&source, line.source, "\n");
      absl::StrAppend(&reference, line.target, "\n");
    }
    if (set.segments == 0) return InvalidArgumentError("the test set is empty; remove it from the list");
    set.key = absl::StrFormat("%s source %08x", how, Crc32c(source.data(), source.size(), 0));
    HADAL_RETURN_IF_ERROR(ReplaceFile(PathOf(set.stem, ".source"), source, "new"));
    return ReplaceFile(PathOf(set.stem, ".reference"), reference, "new");
  }

  const EvaluateOptions& options_;
  TranslateStreams streams_;
  std::string checkpoint_;  // its directory
  LanguageTags tags_ = LanguageTags::kNone;
  std::vector<TestSet> sets_;
  std::optional<OutputFolder> lock_;
  std::set<std::string> owned_;  // names of the folder's files that this command or an earlier one has written
  size_t next_ = 0;              // test set
  bool translating_ = false;     // the test set before next_
  int64_t kept_ = 0;
};

}  // namespace

absl::Status RunEvaluate(const EvaluateOptions& options, Communicator& communicator, const Stream& stream,
                         const TranslateStreams& streams) {
  Evaluator evaluator(options, streams);
  const bool is_main = communicator.rank() == 0;
  Collectives patient(communicator, absl::Hours(24));
  HADAL_RETURN_IF_ERROR(patient.AllOk(is_main ? evaluator.Prepare() : absl::OkStatus(), "reading the test sets"));
  EvaluateOptions chosen = options;
  chosen.overwrite = true;  // its own translations
  // Not the run's best by now, of a run in progress; NotFound if that has removed it.
  if (is_main) chosen.checkpoint = evaluator.checkpoint();
  HADAL_RETURN_IF_ERROR(RunTranslations(
      chosen, [&evaluator] { return evaluator.Next(); }, communicator, stream, streams));
  return patient.AllOk(is_main ? evaluator.Report() : absl::OkStatus(), "scoring");
}

void AddEvaluateOptions(Command command, EvaluateOptions& options) {
  AddSetTranslationOptions(command, options);
  command.AddOption("--list FILE", options.list, "List of texts with test sets (configs/corpora.proto)");
  command.AddOption("--opus FOLDER", options.opus, "Folder laid out as OPUS-100");
  command.AddOption("-o,--out FOLDER", options.folder, "Folder for sources, references, translations and reports")
      .Required();
  command.AddOption("--against FOLDER", options.against, "Another evaluation's --out, to compare with");
  command.AddOption("--train-corpus PREFIX", options.train_corpus,
                    "Corpus that the model was trained on, for sizes and zero-shot");
  command.AddOption("--pivot", options.pivot, "Language whose directions get separate means").ShowDefault();
}

}  // namespace hadal
