// fairseq's dict.txt: one "token count" per line, most frequent first, without the four special tokens. A line may end
// in "#fairseq:overwrite": its token may then repeat an earlier one and takes over the name; both keep their ids.
// Source of the format: fairseq, fairseq/data/dictionary.py, add_from_file.
#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/data/unicode_text.h"
#include "runtime/data/vocabulary_model.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

class DictionaryModel : public VocabularyModel {
 public:
  using VocabularyModel::VocabularyModel;

  VocabularyKind kind() const override { return VocabularyKind::kDictionary; }

  std::vector<int32_t> Encode(std::string_view text) const override {
    std::vector<int32_t> ids;
    for (const std::string_view word : SplitAtSpace(text)) {  // Unicode's, as fairseq does
      const int32_t id = table().Id(word);
      ids.push_back(TokenTable::IsSpecial(id) ? kUnknownToken : id);
    }
    return ids;
  }

  std::string Decode(std::span<const int32_t> ids) const override { return JoinWithSpaces(table(), ids); }
};

// Adds one line to the table. The error describes the fault in the line.
absl::Status AddLine(std::string line, TokenTable& table) {
  constexpr std::string_view kOverwrite = " #fairseq:overwrite";
  const bool overwrite = line.ends_with(kOverwrite);
  if (overwrite) line.resize(line.size() - kOverwrite.size());
  const size_t space = line.rfind(' ');
  if (space == std::string::npos || space == 0) {
    return absl::InvalidArgumentError("expected 'token count' with one space between them");
  }
  const std::string token = line.substr(0, space);
  const std::string count = line.substr(space + 1);
  int64_t number = 0;
  if (!absl::SimpleAtoi(count, &number)) {
    return absl::InvalidArgumentError(absl::StrCat("the count '", count, "' is not a number"));
  }
  if (std::ranges::any_of(token, absl::ascii_isspace)) {
    return absl::InvalidArgumentError(absl::StrCat("the token '", token, "' has a space inside"));
  }
  if (!table.Add(token, overwrite) && !overwrite) {
    return absl::InvalidArgumentError(
        absl::StrCat("the token '", token, "' already has the id ", table.Id(token), "; remove one of the two"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<const VocabularyModel>> ParseDictionary(std::string contents, const std::string& name) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  TokenTable table;
  size_t begin = contents.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  for (int64_t number = 1; begin < contents.size(); ++number) {
    const size_t end = std::min(contents.find('\n', begin), contents.size());
    std::string line = contents.substr(begin, end - begin);
    begin = end + 1;
    absl::StripTrailingAsciiWhitespace(&line);
    if (const absl::Status status = AddLine(std::move(line), table); !status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ", line ", number, ": ", status.message(),
                       " (this is neither a SentencePiece model nor a fairseq dictionary, or a damaged one)"));
    }
  }
  return std::make_unique<const DictionaryModel>(std::move(table), std::move(contents));
}

}  // namespace hadal
