#include "runtime/data/vocabulary_training.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/data/piece_model.h"
#include "runtime/data/unicode_text.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr std::array<const char*, 5> kNormalizations = {"nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity"};

std::unordered_map<std::string, std::string> TrainerArguments(const VocabularyTraining& options) {
  return {{"model_type", options.algorithm == PieceAlgorithm::kBpe ? "bpe" : "unigram"},
          {"vocab_size", absl::StrCat(options.size)},
          {"character_coverage", absl::StrCat(options.character_coverage)},
          {"normalization_rule_name", options.normalization},
          {"bos_id", absl::StrCat(kBosToken)},
          {"pad_id", absl::StrCat(kPadToken)},
          {"eos_id", absl::StrCat(kEosToken)},
          {"unk_id", absl::StrCat(kUnknownToken)},
          {"hard_vocab_limit", "false"},       // if it comes out smaller, its size is the largest possible
          {"max_sentence_length", "1048576"},  // bytes; TrainPieceModel passes shorter parts
          {"num_threads", "1"},
          {"minloglevel", "3"}};
}

// Converts the trainer's error. It contains the smallest possible size: "… required_chars. 4 vs 16. …".
absl::Status TrainingError(const std::string& message, int32_t size) {
  constexpr std::string_view kTooSmall = "required_chars. ";
  constexpr std::string_view kVersus = " vs ";
  const size_t place = message.find(kTooSmall);
  const size_t number = place == std::string::npos ? place : message.find(kVersus, place);
  if (number == std::string::npos) return InvalidArgumentError("training the vocabulary failed: ", message);
  const size_t begin = number + kVersus.size();
  const std::string smallest = message.substr(begin, message.find('.', begin) - begin);
  return InvalidArgumentError("a vocabulary of ", size,
                              " ids is too small: the text's characters and the special tokens alone need ", smallest,
                              "; use a larger size, or lower the character coverage");
}

// An upper bound of the ids that BPE can make of the text: each piece beyond the characters is part of a word, and a
// word of n characters with its space is merged at most n times. Bytes stand for characters.
int64_t MostBpeIds(const std::vector<std::string>& sentences) {
  std::unordered_set<std::string_view> words;
  int64_t ids = kSpecialTokens + 256;
  for (const std::string_view line : sentences) {
    for (size_t begin = 0; begin < line.size();) {
      const size_t end = std::min(line.find(' ', begin), line.size());
      if (words.insert(line.substr(begin, end - begin)).second) ids += static_cast<int64_t>(end - begin) + 1;
      begin = end + 1;
    }
  }
  return ids;
}

// Training on a large text takes minutes; a size that is far too large is refused before.
absl::Status CheckSizeForText(const VocabularyTraining& options, const std::vector<std::string>& sentences) {
  constexpr size_t kLargeBytes = size_t{1} << 20;
  constexpr int64_t kMargin = 2;  // normalization changes characters
  size_t bytes = 0;
  for (const std::string& line : sentences) bytes += line.size();
  if (options.algorithm != PieceAlgorithm::kBpe || bytes < kLargeBytes) return absl::OkStatus();
  const int64_t most = kMargin * MostBpeIds(sentences);
  if (options.size <= most) return absl::OkStatus();
  return InvalidArgumentError("a vocabulary of ", options.size, " ids is too large for this text: its ",
                              "distinct words give fewer than ", most,
                              "; use a smaller size (8000 suits most texts), or more text");
}

absl::StatusOr<Vocabulary> CountWords(const VocabularyTraining& options, const std::vector<std::string>& sentences) {
  std::unordered_map<std::string, int64_t> counts;
  for (const std::string& line : sentences) {
    for (const std::string_view word : SplitAtSpace(line)) ++counts[std::string(word)];
  }
  for (const char* special : {"<s>", "<pad>", "</s>", "<unk>"}) counts.erase(special);
  std::vector<std::pair<std::string, int64_t>> words(counts.begin(), counts.end());
  std::erase_if(words, [&](const auto& word) { return word.second < options.least_count; });
  std::ranges::sort(words, [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  if (options.size > 0) words.resize(std::min<size_t>(words.size(), options.size - kSpecialTokens));
  if (words.empty()) {
    return InvalidArgumentError("no word occurs ", options.least_count, " times; lower the least count");
  }
  std::string contents;
  for (const auto& [word, count] : words) absl::StrAppend(&contents, word, " ", count, "\n");
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // a reader removes the file's, not the word's
  if (contents.starts_with(kByteOrderMark)) contents.insert(0, kByteOrderMark);
  return Vocabulary::Parse(std::move(contents), "the words of the text");
}

}  // namespace

absl::Status CheckVocabularyTraining(const VocabularyTraining& options) {
  if (options.algorithm == PieceAlgorithm::kWord && options.size == 0) return absl::OkStatus();
  if (options.size <= kSpecialTokens) {
    return InvalidArgumentError("a vocabulary of ", options.size, " ids has no room beside the ", kSpecialTokens,
                                " special ones; use at least a few hundred");
  }
  if (!(options.character_coverage >= 0.98 && options.character_coverage <= 1)) {  // SentencePiece's range
    return InvalidArgumentError("character coverage ", options.character_coverage,
                                " is outside [0.98, 1]; 1 keeps every character");
  }
  if (std::ranges::find(kNormalizations, options.normalization) == kNormalizations.end()) {
    return InvalidArgumentError("unknown normalization '", options.normalization, "'; one of ",
                                absl::StrJoin(kNormalizations, ", "));
  }
  return absl::OkStatus();
}

absl::StatusOr<Vocabulary> TrainVocabulary(const VocabularyTraining& options,
                                           const std::vector<std::string>& sentences) {
  HADAL_RETURN_IF_ERROR(CheckVocabularyTraining(options));
  const bool has_text = std::ranges::any_of(
      sentences, [](const std::string& line) { return line.find_first_not_of(" \t\r\n") != std::string::npos; });
  if (!has_text) return InvalidArgumentError("there is no text to train a vocabulary on");
  if (options.algorithm == PieceAlgorithm::kWord) return CountWords(options, sentences);
  HADAL_RETURN_IF_ERROR(CheckSizeForText(options, sentences));

  std::string contents;
  std::string error;
  if (!TrainPieceModel(TrainerArguments(options), sentences, contents, error)) {
    return TrainingError(error, options.size);
  }

  HADAL_ASSIGN_OR_RETURN(Vocabulary vocabulary, Vocabulary::Parse(std::move(contents), "the trained vocabulary"));
  if (vocabulary.size() < options.size) {
    return InvalidArgumentError("this text gives a vocabulary of at most ", vocabulary.size(), " ids, ", options.size,
                                " were requested; use at most ", vocabulary.size(), ", or more text");
  }
  return vocabulary;
}

}  // namespace hadal
