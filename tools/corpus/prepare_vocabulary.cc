#include "tools/corpus/prepare_corpus.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <ostream>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"
#include "runtime/data/sampling_order.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"
#include "runtime/text.h"
#include "tools/corpus/parallel_text.h"
#include "tools/output/human_units.h"
#include "tools/output/work_progress.h"

namespace hadal {
namespace {

absl::StatusOr<SavedVocabulary> SaveAs(Vocabulary vocabulary, const std::string& stem, const std::string& directory) {
  SavedVocabulary saved = {.vocabulary = std::move(vocabulary)};
  saved.file = saved.vocabulary.FileName(stem);
  HADAL_RETURN_IF_ERROR(saved.vocabulary.Save(JoinPath(directory, saved.file)));
  return saved;
}

// Source and target lines alternate, so that a trainer with its own limit sees both languages.
std::vector<std::string> Interleave(SampledText text) {
  if (text.source.empty()) return std::move(text.target);
  std::vector<std::string> lines;
  lines.reserve(2 * text.source.size());
  for (size_t i = 0; i < text.source.size(); ++i) {
    lines.push_back(std::move(text.source[i]));
    lines.push_back(std::move(text.target[i]));
  }
  return lines;
}

void Announce(const PrepareOptions& options, int64_t pairs, std::ostream& out) {
  if (options.training.algorithm == PieceAlgorithm::kWord) {
    out << "counting the words of " << HumanCount(pairs) << " " << options.units() << " ..." << std::endl;
    return;
  }
  const bool bpe = options.training.algorithm == PieceAlgorithm::kBpe;
  out << "training "
      << (options.separate      ? "two "
          : options.monolingual ? "a "
                                : "a shared ")
      << (bpe ? "BPE" : "unigram") << (options.separate ? " vocabularies" : " vocabulary") << " of "
      << HumanCount(options.training.size) << " ids on " << HumanCount(pairs) << " " << options.units() << " ..."
      << std::endl;
}

// The lines that spell a special token: SentencePiece leaves its characters out when it chooses the alphabet.
int64_t LinesWithSpecialTokens(const SampledText& text) {
  const auto has_one = [](const std::string& line) {
    return std::ranges::any_of(std::array{"<s>", "</s>", "<pad>", "<unk>"},
                               [&](const char* token) { return absl::StrContains(line, token); });
  };
  return std::ranges::count_if(text.source, has_one) + std::ranges::count_if(text.target, has_one);
}

void WarnOfSpecialTokens(int64_t lines, const CorpusVocabularies& vocabularies, std::ostream& out) {
  std::string missing;
  for (const char* mark : {"<", ">", "/"}) {
    for (const Vocabulary* vocabulary : {&vocabularies.source, &vocabularies.target}) {
      const std::vector<int32_t> ids = vocabulary->Encode(mark);
      if (std::ranges::find(ids, kUnknownToken) == ids.end()) continue;
      absl::StrAppend(&missing, missing.empty() ? "" : " ", mark);
      break;
    }
  }
  if (lines == 0 || missing.empty()) return;
  out << "warning: " << HumanCount(lines) << " lines spell <s>, </s>, <pad> or <unk>, whose characters are not counted "
      << "for the vocabulary; it lacks " << missing
      << ", which become <unk> there. Write such marks in another way, as [s]" << std::endl;
}

// Text that another program has cut into pieces: the model would learn their marks, and scores would be of pieces.
void WarnOfPieces(const SampledText& text, std::ostream& out) {
  constexpr ptrdiff_t kMany = 10;  // one line in so many
  for (const auto& [mark, name] : {std::pair("@@ ", "subword-nmt's"), std::pair("\xE2\x96\x81", "SentencePiece's")}) {
    const auto has_mark = [&mark = mark](const std::string& line) { return absl::StrContains(line, mark); };
    if (std::ranges::count_if(text.target, has_mark) * kMany <= std::ssize(text.target)) continue;
    out << "warning: the text is already in pieces (" << name << " mark \"" << mark << "\"): give it as it was before "
        << "that, or with its own dictionary (--vocab dict.txt)" << std::endl;
  }
}

absl::StatusOr<CorpusVocabularies> TrainOn(const PrepareOptions& options, SampledText text) {
  const WorkProgress progress(options.separate ? "training the vocabularies" : "training the vocabulary", "", 0);
  if (!options.separate) {
    HADAL_ASSIGN_OR_RETURN(Vocabulary shared, TrainVocabulary(options.training, Interleave(std::move(text))));
    return CorpusVocabularies{shared, shared};
  }
  HADAL_ASSIGN_OR_RETURN(Vocabulary source, TrainVocabulary(options.training, text.source));
  HADAL_ASSIGN_OR_RETURN(Vocabulary target, TrainVocabulary(options.training, text.target));
  return CorpusVocabularies{std::move(source), std::move(target)};
}

std::string WithoutSpaces(std::string text) {
  std::erase(text, ' ');
  return text;
}

// The share of the pair's first targets, of those without unknown tokens, that decode to other characters.
absl::StatusOr<double> RewrittenShare(const TextPair& pair, const Vocabulary& vocabulary) {
  constexpr int64_t kLines = 500;
  HADAL_ASSIGN_OR_RETURN(ParallelReader reader, ParallelReader::Open(pair));
  ParallelLine line;
  int64_t lines = 0, rewritten = 0;
  while (lines < kLines) {
    HADAL_ASSIGN_OR_RETURN(const bool more, reader.Next(line));
    if (!more) break;
    if (line.empty || !line.invalid.empty()) continue;
    const std::vector<int32_t> ids = vocabulary.Encode(line.target);
    if (std::ranges::find(ids, kUnknownToken) != ids.end()) continue;
    ++lines;
    rewritten += WithoutSpaces(vocabulary.Decode(ids)) != WithoutSpaces(line.target);
  }
  return lines == 0 ? 0 : static_cast<double>(rewritten) / static_cast<double>(lines);
}

}  // namespace

absl::Status WarnOfRewriting(const Split& train, const Vocabulary& target, std::ostream& out) {
  constexpr double kMany = 0.05;
  if (target.kind() != VocabularyKind::kSentencePiece) return absl::OkStatus();  // words are not normalized
  const TextPair* worst = nullptr;
  double most = kMany;
  for (const TextPair& pair : train.pairs) {
    if (pair.source.empty() && pair.features.empty()) continue;  // plain text: nothing is compared with a translation
    HADAL_ASSIGN_OR_RETURN(const double share, RewrittenShare(pair, target));
    if (share <= most) continue;
    most = share;
    worst = &pair;
  }
  if (worst == nullptr) return absl::OkStatus();
  out << absl::StrFormat(
      "warning: the vocabulary's normalization changes characters in %.0f%% of the targets of %s (first lines): no "
      "translation can equal them, which costs BLEU; --normalization identity keeps them\n",
      100 * most, CorpusName(*worst));
  return absl::OkStatus();
}

absl::StatusOr<std::optional<CorpusVocabularies>> GivenVocabularies(const PrepareOptions& options) {
  if (!options.tokenizer.empty()) {
    HADAL_ASSIGN_OR_RETURN(const Vocabulary tokenizer, Vocabulary::Load(options.tokenizer));
    if (tokenizer.kind() != VocabularyKind::kTokenizer) {
      return InvalidArgumentError("--tokenizer ", options.tokenizer,
                                  " is no tokenizer.json; give a SentencePiece model or dict.txt as --vocab");
    }
    return CorpusVocabularies{tokenizer, tokenizer};
  }
  const bool has_source = !options.source_vocabulary.empty();
  const bool has_target = !options.target_vocabulary.empty();
  if (!has_source && !has_target) {
    HADAL_RETURN_IF_ERROR(CheckVocabularyTraining(options.training));
    return std::nullopt;
  }
  HADAL_ASSIGN_OR_RETURN(Vocabulary source,
                         Vocabulary::Load(has_source ? options.source_vocabulary : options.target_vocabulary));
  HADAL_ASSIGN_OR_RETURN(Vocabulary target,
                         Vocabulary::Load(has_target ? options.target_vocabulary : options.source_vocabulary));
  for (const Vocabulary* vocabulary : {&source, &target}) {
    if (vocabulary->kind() != VocabularyKind::kTokenizer) continue;
    return InvalidArgumentError("a tokenizer.json is for plain text: give it as --tokenizer, with --monolingual");
  }
  return CorpusVocabularies{std::move(source), std::move(target)};
}

namespace {

// The first of the tokens `names` that the tokenizer_config.json beside the tokenizer.json has; "": none.
std::string Declared(const PrepareOptions& options, const std::vector<std::string>& names) {
  constexpr int64_t kMostBytes = int64_t{64} << 20;
  const std::string path = JoinPath(DirectoryName(options.tokenizer), "tokenizer_config.json");
  const auto config =
      nlohmann::json::parse(ReadFile(path, kMostBytes).value_or(""), nullptr, /*allow_exceptions=*/false);
  for (const std::string& name : names) {
    auto token = config.is_object() ? config.value(name, nlohmann::json()) : nlohmann::json();
    if (token.is_object()) token = token.value("content", nlohmann::json());  // an AddedToken
    if (token.is_string()) return token.get<std::string>();
  }
  return "";
}

// The id of a token of the tokenizer.json; "": none is known. `use`: what it is; `option`: what names it.
absl::StatusOr<int32_t> FindToken(const PrepareOptions& options, const Vocabulary& vocabulary, const std::string& token,
                                  const char* use, const char* option) {
  const int32_t id = vocabulary.Id(token);
  if (!token.empty() && id < vocabulary.size() && vocabulary.Token(id) == token) return id;
  return InvalidArgumentError(
      options.tokenizer,
      token.empty() ? " and the tokenizer_config.json beside it do not say which token " : " has no ",
      token.empty() ? "" : absl::StrCat("\"", Printable(token), "\", which "), use, "; name a token of it: ", option);
}

}  // namespace

absl::Status SetSpecialTokens(const PrepareOptions& options, const Vocabulary& vocabulary, TextCodec& codec,
                              SpecialTokens& special) {
  if (vocabulary.kind() != VocabularyKind::kTokenizer) {
    const int32_t mask = vocabulary.Id(kMaskToken);
    if (!options.monolingual || options.features || mask == kUnknownToken) return absl::OkStatus();
    special.mask = mask;
    special.all = {kBosToken, kPadToken, kEosToken, kUnknownToken, mask};
    return absl::OkStatus();
  }
  TextForm& form = special.form;
  HADAL_ASSIGN_OR_RETURN(auto ids, codec.SpecialIds());
  std::vector<int32_t>& added = ids[0];
  special.unknown = ids[2].empty() ? -1 : ids[2][0];
  std::string end = options.end_token.empty() ? Declared(options, {"eos_token", "sep_token"}) : options.end_token;
  if (end.empty() && added.size() > 1) end = vocabulary.Token(added.back());
  HADAL_ASSIGN_OR_RETURN(form.end_token, FindToken(options, vocabulary, end, "ends a document", "--end-token"));
  if (!added.empty() && added.back() == form.end_token) added.pop_back();
  if (added.size() > 1) {
    return InvalidArgumentError(options.tokenizer, ": its post-processor adds ", added.size(),
                                " tokens to a text beside the one that ends it (", absl::StrJoin(added, ", "),
                                "); one before the text is read. Is --end-token ", end, " right?");
  }
  form.start_token = added.empty() ? form.end_token : added[0];
  form.reserved_ids = false;
  if (!options.mask_token) return absl::OkStatus();
  const std::string mask = options.mask_token->empty() ? Declared(options, {"mask_token"}) : *options.mask_token;
  HADAL_ASSIGN_OR_RETURN(special.mask, FindToken(options, vocabulary, mask, "is the mask", "--mask-token"));
  if (special.mask == form.end_token || special.mask == form.start_token || special.mask == special.unknown) {
    return InvalidArgumentError("--mask-token ", mask,
                                " is also the token that starts or ends a document, or the unknown one; name another");
  }
  std::set<int32_t> all(ids[1].begin(), ids[1].end());
  all.insert({special.mask, form.start_token, form.end_token});
  special.all.assign(all.begin(), all.end());
  form.start_token = form.end_token;  // what the post-processor puts before a text is then one of its tokens
  return absl::OkStatus();
}

absl::StatusOr<CorpusVocabularies> TrainVocabularies(const PrepareOptions& options, const Split& train,
                                                     const SplitSurvey& survey, std::ostream& out) {
  // Of as many pairs as there are, or as are requested, each text's quota.
  const std::vector<int64_t> usable = survey.usable();
  std::vector<int64_t> counts = SamplingQuotas(usable, options.vocabulary_temperature);
  const bool words = options.training.algorithm == PieceAlgorithm::kWord;  // rare ones count only in the whole text
  const int64_t all = std::accumulate(usable.begin(), usable.end(), int64_t{0});
  if (!words && all > options.vocabulary_pairs) {
    for (int64_t& count : counts) count = std::max<int64_t>(count > 0 ? 1 : 0, count * options.vocabulary_pairs / all);
  }
  HADAL_ASSIGN_OR_RETURN(SampledText text, SampleText(train, options, survey, counts));
  Announce(options, static_cast<int64_t>(text.target.size()), out);
  const int64_t special = words ? 0 : LinesWithSpecialTokens(text);
  if (!words) WarnOfPieces(text, out);
  HADAL_ASSIGN_OR_RETURN(CorpusVocabularies vocabularies, TrainOn(options, std::move(text)));
  WarnOfSpecialTokens(special, vocabularies, out);
  return vocabularies;
}

absl::Status CheckLanguages(const std::vector<Split>& splits) {
  std::set<std::string> trained;
  for (const Split& split : splits) {
    for (const TextPair& pair : split.pairs) {
      if (pair.direction.target.empty()) {
        return InvalidArgumentError("--tags needs every text's languages, those of ", CorpusName(pair),
                                    " are not known; name texts by --list");
      }
      for (const std::string& language : {pair.direction.source, pair.direction.target}) {
        if (split.training) trained.insert(language);
        if (trained.contains(language)) continue;
        return InvalidArgumentError(split.name, ": ", CorpusName(pair), ": no training text is in \"", language,
                                    "\", so that its tag would be untrained; correct the "
                                    "direction, or leave the text out");
      }
    }
  }
  return absl::OkStatus();
}

absl::Status AddTagsOf(const std::vector<Split>& splits, int32_t reserved, CorpusVocabularies& vocabularies) {
  std::set<std::string> languages;
  for (const Split& split : splits) {
    for (const TextPair& pair : split.pairs) languages.insert({pair.direction.source, pair.direction.target});
  }
  const std::vector<std::string> sorted(languages.begin(), languages.end());
  HADAL_ASSIGN_OR_RETURN(vocabularies.source, AddLanguageTags(vocabularies.source, sorted, reserved));
  HADAL_ASSIGN_OR_RETURN(vocabularies.target, AddLanguageTags(vocabularies.target, sorted, reserved));
  return absl::OkStatus();
}

absl::StatusOr<PreparedVocabularies> SaveVocabularies(CorpusVocabularies vocabularies, const std::string& directory) {
  if (vocabularies.source.contents() == vocabularies.target.contents()) {
    HADAL_ASSIGN_OR_RETURN(const SavedVocabulary shared,
                           SaveAs(std::move(vocabularies.source), "vocabulary", directory));
    return PreparedVocabularies{shared, shared};
  }
  HADAL_ASSIGN_OR_RETURN(SavedVocabulary source, SaveAs(std::move(vocabularies.source), "source", directory));
  HADAL_ASSIGN_OR_RETURN(SavedVocabulary target, SaveAs(std::move(vocabularies.target), "target", directory));
  return PreparedVocabularies{std::move(source), std::move(target)};
}

}  // namespace hadal
