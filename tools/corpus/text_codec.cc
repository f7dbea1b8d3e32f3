#include "tools/corpus/text_codec.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/bytes.h"
#include "runtime/status_macros.h"
#include "runtime/text.h"
#include "tools/corpus/text_lines.h"

namespace hadal {
namespace {

// The first byte of a message to `hadal_torch tokenize`.
constexpr char kLoad = 'l', kEncode = 'e', kEncodeAlone = 'a', kSpecial = 's', kDecode = 'd';
// An answer that begins so is the message of an error.
constexpr std::string_view kFailed("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF");

// Reads a text of kind kIds. Errors: InvalidArgument with the first word that is no id.
absl::StatusOr<std::vector<int32_t>> ParseIds(std::string_view text, int32_t vocabulary_size) {
  std::vector<int32_t> ids;
  for (const absl::string_view word :
       absl::StrSplit(absl::string_view(text.data(), text.size()), absl::ByAnyChar(" \t"), absl::SkipEmpty())) {
    int32_t& id = ids.emplace_back();
    if (absl::SimpleAtoi(word, &id) && id >= 0 && id < vocabulary_size) continue;
    return InvalidArgumentError("\"", Printable({word.data(), word.size()}),
                                "\" is no token id of the vocabulary; give numbers from 0 to ", vocabulary_size - 1,
                                " with spaces between them");
  }
  return ids;
}

}  // namespace

void RemoveEnds(const TextForm& form, std::vector<int32_t>& ids) {
  if (!ids.empty() && ids.back() == form.end_token) ids.pop_back();
  const bool started = form.start_token != form.end_token && !ids.empty() && ids.front() == form.start_token;
  if (started) ids.erase(ids.begin());
}

absl::StatusOr<TextCodec> TextCodec::Open(const Vocabulary& vocabulary, CodecInput kind) {
  std::optional<PythonService> python;
  if (kind == CodecInput::kText && vocabulary.kind() == VocabularyKind::kTokenizer) {
    HADAL_ASSIGN_OR_RETURN(python, PythonService::Start("hadal_torch", {"tokenize"}));
    if (!python->Ask(kLoad + vocabulary.contents()).ok()) return InvalidArgumentError("");
  }
  return TextCodec(vocabulary, kind, std::move(python));
}

absl::StatusOr<std::vector<std::vector<int32_t>>> TextCodec::EncodeAll(const std::vector<std::string>& texts,
                                                                       bool alone) {
  if (python_) {
    std::string message(1, alone ? kEncodeAlone : kEncode);
    AppendValue(uint64_t{texts.size()}, message);
    for (const std::string& text : texts) AppendList(text, message);
    const absl::StatusOr<std::string> answer = python_->Ask(message);
    HADAL_RETURN_IF_ERROR(answer.status());
    if (!answer->starts_with(kFailed)) return TokenListsFromBytes(*answer);
    return InvalidArgumentError("the tokenizer cannot encode the text: ", answer->substr(kFailed.size()));
  }
  std::vector<std::vector<int32_t>> lists;
  for (const std::string& text : texts) {
    if (kind_ == CodecInput::kText) {
      lists.push_back(vocabulary_.Encode(text));
      continue;
    }
    HADAL_ASSIGN_OR_RETURN(lists.emplace_back(), ParseIds(text, vocabulary_.size()));
  }
  return lists;
}

absl::StatusOr<std::vector<int32_t>> TextCodec::Encode(const std::string& text, bool alone) {
  HADAL_ASSIGN_OR_RETURN(std::vector<std::vector<int32_t>> lists, EncodeAll({text}, alone));
  return std::move(lists.front());
}

absl::StatusOr<std::vector<int32_t>> TextCodec::Encode(const ParallelLine& line, const std::string& path, bool alone) {
  if (!line.invalid.empty()) return InvalidArgumentError(line.invalid, "; correct it");
  auto ids = line.has_ids ? ParseIds(line.target, vocabulary_.size()) : Encode(line.target, alone);
  if (ids.ok()) return ids;
  return absl::Status(ids.status().code(), absl::StrCat(path, ":", line.number, ": ", ids.status().message()));
}

absl::StatusOr<std::string> TextCodec::Decode(const std::vector<int32_t>& ids, PieceJoining joining) {
  if (kind_ == CodecInput::kIds) return absl::StrJoin(ids, " ");
  if (!python_) return vocabulary_.Decode(ids, joining);
  std::string message(1, kDecode);
  message += AsBytes(ids);
  return python_->Ask(message);
}

absl::StatusOr<std::vector<std::vector<int32_t>>> TextCodec::SpecialIds() {
  HADAL_ASSIGN_OR_RETURN(const std::string answer, python_->Ask(std::string(1, kSpecial)));
  return TokenListsFromBytes(answer);
}

}  // namespace hadal
