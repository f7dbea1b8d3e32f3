#include "tools/evaluate/evaluate.h"

#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <ostream>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "pipeline/checkpoint/model_checkpoint.h"
#include "runtime/comm/collectives.h"
#include "runtime/crc32c.h"
#include "runtime/data/corpus.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"
#include "tools/corpus/corpora_list.h"
#include "tools/corpus/parallel_text.h"
#include "tools/evaluate/evaluation.h"
#include "tools/python_child.h"
#include "tools/translate/beam_choices.h"
#include "tools/translate/direction_tags.h"

namespace hadal {
namespace {

constexpr int64_t kMostJsonBytes = int64_t{64} << 20;

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
  const std::string& checkpoint() const { return evaluation_.checkpoint; }

  // Checks and copies all test sets.
  absl::Status Prepare() {
    HADAL_ASSIGN_OR_RETURN(const ModelCheckpoint checkpoint, ModelCheckpoint::Open(options_.checkpoint));
    evaluation_ = {.checkpoint = checkpoint.directory(), .other = options_.against, .pivot = options_.pivot};
    HADAL_ASSIGN_OR_RETURN(const std::string how, Fingerprint(checkpoint));
    HADAL_ASSIGN_OR_RETURN(const TextSplits splits,
                           options_.opus.empty() ? ReadCorporaList(options_.list) : FindOpusTexts(options_.opus));
    if (splits.test.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(options_.opus.empty() ? options_.list : options_.opus, " has no test sets; add test: [\"…\"]"));
    }
    std::map<std::pair<std::string, std::string>, int64_t> pairs;
    if (!options_.train_corpus.empty()) {
      HADAL_ASSIGN_OR_RETURN(pairs, TrainingPairs());
    }
    std::set<std::string> stems;
    for (const TextPair& text : splits.test) {
      HADAL_RETURN_IF_ERROR(Named(text, FindDirectionTags(checkpoint, options_.tags, text.direction).status()));
      TestSetScores& set = evaluation_.sets.emplace_back();
      set.name = CorpusName(text);
      set.stem = StemOf(set.name);
      set.direction = text.direction;
      set.tokenizer = BleuTokenizerOf(text.direction.target);
      if (!options_.train_corpus.empty()) set.training_pairs = pairs[{text.direction.source, text.direction.target}];
      if (!stems.insert(set.stem).second) {
        return absl::InvalidArgumentError(absl::StrCat(
            set.name, ": another test set's files have this name, too: ", set.stem, "; choose another domain"));
      }
    }
    HADAL_RETURN_IF_ERROR(CheckInputsStay(splits.test));
    HADAL_RETURN_IF_ERROR(MakeDirectories(options_.folder));
    for (size_t i = 0; i < splits.test.size(); ++i) {
      uint32_t crc = 0;
      HADAL_RETURN_IF_ERROR(Named(splits.test[i], Copy(splits.test[i], evaluation_.sets[i], crc)));
      keys_.push_back(absl::StrFormat("%s source %08x\n", how, crc));
    }
    return absl::OkStatus();
  }

  // The next test set that is not translated yet; files the previous one's translation.
  absl::StatusOr<std::optional<TranslationJob>> Next() {
    if (translating_) {
      const std::string& stem = evaluation_.sets[next_ - 1].stem;
      HADAL_RETURN_IF_ERROR(ReplaceFile(PathOf(stem, ".key"), keys_[next_ - 1], "new"));
    }
    for (; next_ < evaluation_.sets.size(); ++next_) {
      const TestSetScores& set = evaluation_.sets[next_];
      const absl::StatusOr<std::string> key = ReadFile(PathOf(set.stem, ".key"), 4096);
      if (key.ok() && *key == keys_[next_] && PathExists(PathOf(set.stem, ".hypothesis"))) {
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
    for (TestSetScores& set : evaluation_.sets) {
      ScoredFiles files{.hypotheses = PathOf(set.stem, ".hypothesis"), .references = PathOf(set.stem, ".reference")};
      if (!options_.against.empty()) {
        HADAL_ASSIGN_OR_RETURN(files.other, OtherTranslation(set));
      }
      HADAL_RETURN_IF_ERROR(ScoreFiles(files, set));
    }
    ClassifyLanguages();
    const std::string text = EvaluationMarkdown(evaluation_);
    HADAL_RETURN_IF_ERROR(ReplaceFile(PathOf("report", ".md"), text, "new"));
    HADAL_RETURN_IF_ERROR(ReplaceFile(PathOf("report", ".html"), EvaluationHtml(evaluation_), "new"));
    HADAL_RETURN_IF_ERROR(ReplaceFile(PathOf("evaluation", ".json"), EvaluationJson(evaluation_), "new"));
    streams_.out << text << std::flush;
    return absl::OkStatus();
  }

 private:
  std::string PathOf(const std::string& stem, const char* kind) const {
    return JoinPath(options_.folder, absl::StrCat(stem, kind));
  }

  static absl::Status Named(const TextPair& text, const absl::Status& status) {
    return status.ok() ? status : absl::Status(status.code(), absl::StrCat(CorpusName(text), ": ", status.message()));
  }

  // Names what a translation depends on besides its source.
  absl::StatusOr<std::string> Fingerprint(const ModelCheckpoint& checkpoint) const {
    HADAL_ASSIGN_OR_RETURN(const BeamOptions beam, ChosenBeam(options_.beam, 1, checkpoint));
    uint32_t weights = 0;
    for (const WrittenFile& file : checkpoint.reader().manifest().files) {
      weights = Crc32c(&file.crc32c, sizeof(file.crc32c), weights);
    }
    return absl::StrFormat(
        "model %016x weights %08x beam %d penalty %.17g length %.17g %.17g %d ngram %d longest %d on-long %d join %d "
        "tags %d",
        checkpoint.reader().manifest().plan_hash, weights, beam.beam, beam.length_penalty, beam.max_length_a,
        beam.max_length_b, beam.min_length, beam.no_repeat_ngram, options_.decoder.longest_source,
        static_cast<int>(options_.over_long), static_cast<int>(options_.joining), static_cast<int>(options_.tags));
  }

  // Checks that no file that is written is the list or a text, of whichever test set and under any name.
  absl::Status CheckInputsStay(const std::vector<TextPair>& texts) const {
    std::map<std::pair<dev_t, ino_t>, std::string> inputs;
    struct stat info;
    const auto add = [&](const std::string& path) {
      if (stat(path.c_str(), &info) == 0) inputs.emplace(std::pair(info.st_dev, info.st_ino), path);
    };
    if (!options_.list.empty()) add(options_.list);
    for (const TextPair& text : texts) add(text.source), add(text.target);
    std::vector<std::string> written = {PathOf("report", ".md"), PathOf("report", ".html"),
                                        PathOf("evaluation", ".json"), PathOf("languages", ".json")};
    for (const TestSetScores& set : evaluation_.sets) {
      for (const char* kind : {".source", ".reference", ".hypothesis", ".key"}) {
        written.push_back(PathOf(set.stem, kind));
      }
    }
    for (const std::string& path : written) {
      if (stat(path.c_str(), &info) != 0) continue;
      const auto input = inputs.find({info.st_dev, info.st_ino});
      if (input == inputs.end()) continue;
      return absl::InvalidArgumentError(absl::StrCat("writing ", path, " would overwrite ", input->second,
                                                     ", which is an input; choose another --out"));
    }
    return absl::OkStatus();
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
        return absl::InvalidArgumentError(absl::StrCat(
            "--train-corpus ", options_.train_corpus, ": its part \"", name,
            "\" names no direction; give a corpus that hadal prepare --list or --opus made, or leave the option out"));
      }
      pairs[{direction->source, direction->target}] += of_corpus[c];
    }
    return pairs;
  }

  // Writes the test set's source and reference. `crc`: of the source.
  absl::Status Copy(const TextPair& text, TestSetScores& set, uint32_t& crc) const {
    HADAL_ASSIGN_OR_RETURN(ParallelReader reader, ParallelReader::Open(text));
    std::ofstream source(PathOf(set.stem, ".source"), std::ios::binary);
    std::ofstream reference(PathOf(set.stem, ".reference"), std::ios::binary);
    if (!source || !reference) return CreationError(errno, PathOf(set.stem, !source ? ".source" : ".reference"));
    ParallelLine line;
    while (true) {
      HADAL_ASSIGN_OR_RETURN(const bool more, reader.Next(line));
      if (!more) break;
      if (!line.invalid.empty()) return absl::InvalidArgumentError(line.invalid);
      ++set.segments;
      set.empty_segments += line.empty ? 1 : 0;
      source << line.source << "\n";
      reference << line.target << "\n";
      crc = Crc32c(line.source.data(), line.source.size(), crc);
      crc = Crc32c("\n", 1, crc);
    }
    if (set.segments == 0) return absl::InvalidArgumentError("the test set is empty; remove it from the list");
    if (source.flush() && reference.flush()) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat(PathOf(set.stem, ".source"), ": writing failed; is the disk full?"));
  }

  // The file of the other system's translation of a test set, or "" if it has none.
  // Errors: InvalidArgument if the references differ.
  absl::StatusOr<std::string> OtherTranslation(const TestSetScores& set) const {
    const std::string stem = JoinPath(options_.against, set.stem);
    if (!PathExists(stem + ".hypothesis")) return std::string();
    constexpr int64_t kMostBytes = int64_t{1} << 30;
    HADAL_ASSIGN_OR_RETURN(const std::string theirs, ReadFile(stem + ".reference", kMostBytes));
    HADAL_ASSIGN_OR_RETURN(const std::string ours, ReadFile(PathOf(set.stem, ".reference"), kMostBytes));
    if (theirs == ours) return stem + ".hypothesis";
    return absl::InvalidArgumentError(absl::StrCat("--against ", options_.against, ": ", set.stem,
                                                   ".reference differs from this evaluation's; compare systems on the "
                                                   "same test sets"));
  }

  // Fills the shares of wrong languages, or the note that says why there are none.
  void ClassifyLanguages() {
    evaluation_.language_note =
        "No shares of wrong languages: the classifier did not run, or knows fewer than two of the languages (its "
        "message is on standard error). To install it: pip install lingua-language-detector, for the Python of "
        "HADAL_PYTHON if that is set.";
    std::vector<std::string> arguments = {"languages", options_.folder};
    for (const TestSetScores& set : evaluation_.sets) arguments.push_back(set.stem);
    RemoveTree(PathOf("languages", ".json")).IgnoreError();
    if (!RunHadalTorch(arguments).ok()) return;
    const absl::StatusOr<std::string> text = ReadFile(PathOf("languages", ".json"), kMostJsonBytes);
    const nlohmann::json found =
        text.ok() ? nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false) : nlohmann::json();
    if (!found.is_object() || !found.contains("classifier") || !found["classifier"].is_string()) return;
    for (TestSetScores& set : evaluation_.sets) {
      const auto shares = found.find(set.stem);
      if (shares == found.end() || !shares->is_object()) continue;
      const auto share = [&](const char* side) -> std::optional<double> {
        const auto value = shares->find(side);
        return value != shares->end() && value->is_number() ? std::optional(value->get<double>()) : std::nullopt;
      };
      set.wrong_language = share("hypothesis");
      set.wrong_language_reference = share("reference");
    }
    evaluation_.language_note = absl::StrCat(
        "Wrong language: share of the lines that are not blank, by ", found["classifier"].get<std::string>(),
        ", which chooses among the languages of these test sets; of the references it is its own error.");
  }

  const EvaluateOptions& options_;
  TranslateStreams streams_;
  Evaluation evaluation_;
  std::vector<std::string> keys_;  // [test sets] what a translation depends on
  size_t next_ = 0;                // test set
  bool translating_ = false;       // the test set before next_
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
  // Not the run's best by now, of a run in progress; NotFound if that has removed it.
  if (is_main) chosen.checkpoint = evaluator.checkpoint();
  HADAL_RETURN_IF_ERROR(RunTranslations(
      chosen, [&evaluator] { return evaluator.Next(); }, communicator, stream, streams));
  return patient.AllOk(is_main ? evaluator.Report() : absl::OkStatus(), "scoring");
}

void AddEvaluateOptions(Command command, EvaluateOptions& options) {
  AddSetTranslationOptions(command, options);
  command.AddOption("--list", options.list, "List of texts with test sets (configs/corpora.proto)").ValueName("FILE");
  command.AddOption("--opus", options.opus, "Folder laid out as OPUS-100").ValueName("FOLDER");
  command.AddOption("-o,--out", options.folder, "Folder for sources, references, translations and reports")
      .ValueName("FOLDER")
      .Required();
  command.AddOption("--against", options.against, "Another evaluation's --out, to compare with").ValueName("FOLDER");
  command
      .AddOption("--train-corpus", options.train_corpus,
                 "Corpus that the model was trained on, for sizes and zero-shot")
      .ValueName("PREFIX");
  command.AddOption("--pivot", options.pivot, "Language whose directions have means of their own").ShowDefault();
}

}  // namespace hadal
