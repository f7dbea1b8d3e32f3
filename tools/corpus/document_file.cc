#include "tools/corpus/parallel_text.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "runtime/bytes.h"
#include "runtime/json_fields.h"
#include "runtime/mapped_file.h"
#include "runtime/status_macros.h"
#include "runtime/text.h"
#include "tools/corpus/text_lines.h"

namespace hadal {
namespace {

class JsonDocuments : public DocumentFile {
 public:
  JsonDocuments(TextLines lines, std::string field) : lines_(std::move(lines)), field_(std::move(field)) {}

  absl::StatusOr<bool> Next(std::string& text, std::string& invalid) override {
    text.clear();
    HADAL_ASSIGN_OR_RETURN(const bool more, lines_.NextUnchecked(line_));
    if (!more) return false;
    invalid = lines_.Fault(line_);
    if (!invalid.empty() || absl::StripAsciiWhitespace(line_).empty()) return true;
    const StrictJsonLimits limits{.max_bytes = int64_t{kMostLineBytes}, .max_depth = 64};
    const absl::StatusOr<nlohmann::json> object = ParseStrictJson(line_, limits, lines_.Place());
    invalid = std::string(object.status().message());
    if (!object.ok()) return true;
    const auto found = object->is_object() ? object->find(field_) : object->end();
    if (found != object->end() && found->is_string()) {
      text = found->get<std::string>();
      return true;
    }
    std::vector<std::string> fields;
    for (const auto& [name, value] : object->items()) {
      if (value.is_string()) fields.push_back(Printable(name));
    }
    invalid = absl::StrCat(lines_.Place(), ": no text in the field \"", field_,
                           "\"; --text-field names another: the line has text in ",
                           fields.empty() ? "none" : absl::StrJoin(fields, ", "));
    return true;
  }
  int64_t place() const override { return lines_.lines(); }

 private:
  TextLines lines_;
  std::string field_, line_;
};

class Paragraphs : public DocumentFile {
 public:
  explicit Paragraphs(TextLines lines) : lines_(std::move(lines)) {}

  absl::StatusOr<bool> Next(std::string& text, std::string& invalid) override {
    text.clear();
    invalid.clear();
    while (true) {
      HADAL_ASSIGN_OR_RETURN(const bool more, lines_.NextUnchecked(line_));
      const bool blank = !more || absl::StripAsciiWhitespace(line_).empty();
      if (blank && !text.empty()) return true;
      if (!more) return false;
      if (blank) continue;
      if (text.empty()) first_ = lines_.lines();
      if (invalid.empty()) invalid = lines_.Fault(line_);
      if (text.size() + line_.size() > kMostLineBytes) {
        return InvalidArgumentError(lines_.name(), ":", first_, ": a document of more than ", kMostLineBytes,
                                    " bytes; blank lines separate documents, and ", "JSON Lines has one a line");
      }
      absl::StrAppend(&text, text.empty() ? "" : "\n", line_);
    }
  }
  int64_t place() const override { return first_; }

 private:
  TextLines lines_;
  std::string line_;
  int64_t first_ = 0;
};

// ---- Megatron-LM ----

constexpr std::string_view kIndexMagic("MMIDIDX\0\0", 9);
constexpr size_t kFairseqHeader = 26, kMegatronHeader = 34;

// The type code of an index and the size of its ids; 0: unknown.
size_t BytesOfId(uint8_t code) {
  switch (code) {
    case 4:  // int32
      return 4;
    case 5:  // int64
      return 8;
    case 3:  // int16
    case 8:  // uint16
      return 2;
    default:
      return 0;
  }
}

struct TokenIndex {
  uint8_t code = 0;
  std::vector<int32_t> lengths;    // of sequences
  std::vector<int64_t> documents;  // [documents + 1] first sequence of each, then the number of sequences
  int64_t tokens = 0;
};

absl::StatusOr<TokenIndex> ReadIndex(const std::string& path) {
  HADAL_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  std::string_view left(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  const size_t bytes = left.size();
  const auto damaged = [&](absl::string_view what) {
    return DataLossError(path, ": ", what,
                         "; it is no index of Megatron-LM's version 1, or a damaged one: write it again");
  };
  if (!left.starts_with(kIndexMagic)) return damaged("it does not begin with MMIDIDX");
  left.remove_prefix(kIndexMagic.size());
  uint64_t version = 0, sequences = 0, documents = 0;
  TokenIndex index;
  if (bytes < kFairseqHeader || !TakeValue(left, version) || !TakeValue(left, index.code) ||
      !TakeValue(left, sequences)) {
    return damaged("its header is cut");
  }
  if (version != 1) return damaged(absl::StrCat("it has version ", version));
  if (sequences > bytes / 12) return damaged(absl::StrCat("it is too short for ", sequences, " sequences"));
  if (bytes == kFairseqHeader + 12 * sequences) {
    return InvalidArgumentError(
        path, " is fairseq's index, whose first bytes are Megatron-LM's: give the text that fairseq-preprocess read, ",
        "with --vocab for its dict.txt");
  }
  if (!TakeValue(left, documents) || documents > bytes / 8 ||
      bytes != kMegatronHeader + 12 * sequences + 8 * documents) {
    return damaged(absl::StrCat("its size, ", bytes, " bytes, is that of no index of ", sequences, " sequences"));
  }
  const size_t id_bytes = BytesOfId(index.code);
  if (id_bytes == 0)
    return damaged(absl::StrCat("ids of type code ", int{index.code}, " are not read (3, 4, 5, 8 are)"));
  index.lengths.resize(sequences);
  std::vector<int64_t> pointers(sequences);
  index.documents.resize(documents);
  if (!TakeValues(left, std::span(index.lengths)) || !TakeValues(left, std::span(pointers)) ||
      !TakeValues(left, std::span(index.documents))) {
    return damaged("it is cut");
  }
  for (size_t i = 0; i < sequences; ++i) {
    if (index.lengths[i] < 0 || pointers[i] != index.tokens * static_cast<int64_t>(id_bytes)) {
      return damaged(absl::StrCat("sequence ", i + 1, " does not follow the one before it"));
    }
    index.tokens += index.lengths[i];
  }
  // datatrove's list lacks the leading 0.
  if (index.documents.empty() || index.documents.front() != 0) index.documents.insert(index.documents.begin(), 0);
  for (size_t d = 1; d < index.documents.size(); ++d) {
    if (index.documents[d] < index.documents[d - 1]) return damaged("its list of documents is not ascending");
  }
  if (index.documents.back() != static_cast<int64_t>(sequences)) {
    return damaged("its list of documents does not end with the number of sequences");
  }
  return index;
}

class MegatronDocuments : public DocumentFile {
 public:
  static absl::StatusOr<std::unique_ptr<DocumentFile>> Open(const std::string& prefix) {
    HADAL_ASSIGN_OR_RETURN(TokenIndex index, ReadIndex(prefix + ".idx"));
    HADAL_ASSIGN_OR_RETURN(MappedFile ids, MappedFile::Open(prefix + ".bin"));
    const auto expected = static_cast<size_t>(index.tokens) * BytesOfId(index.code);
    if (ids.bytes().size() != expected) {
      return DataLossError(prefix, ".bin has ", ids.bytes().size(), " bytes, its index says ", expected,
                           "; give the pair that was written together");
    }
    return std::unique_ptr<DocumentFile>(new MegatronDocuments(std::move(index), std::move(ids)));
  }

  absl::StatusOr<bool> Next(std::string& text, std::string& invalid) override {
    text.clear();
    invalid.clear();
    if (place_ + 1 == std::ssize(index_.documents)) return false;
    int64_t tokens = 0;
    for (int64_t s = index_.documents[place_]; s < index_.documents[place_ + 1]; ++s) tokens += index_.lengths[s];
    ++place_;
    for (; tokens > 0; --tokens) absl::StrAppend(&text, text.empty() ? "" : " ", At(read_++));
    return true;
  }
  int64_t place() const override { return place_; }
  bool has_ids() const override { return true; }

 private:
  MegatronDocuments(TokenIndex index, MappedFile ids) : index_(std::move(index)), ids_(std::move(ids)) {}

  template <typename T>
  T Value(int64_t i) const {
    T value;
    std::memcpy(&value, ids_.bytes().data() + static_cast<size_t>(i) * sizeof(T), sizeof(T));
    return value;
  }
  int64_t At(int64_t i) const {
    switch (index_.code) {
      case 3:
        return Value<int16_t>(i);
      case 4:
        return Value<int32_t>(i);
      case 5:
        return Value<int64_t>(i);
      default:
        return Value<uint16_t>(i);
    }
  }

  TokenIndex index_;
  MappedFile ids_;
  int64_t place_ = 0, read_ = 0;
};

// Whether a text begins as JSON Lines do: with an object that has a field.
bool IsJson(absl::string_view begin) {
  absl::ConsumePrefix(&begin, kByteOrderMark);
  begin = absl::StripLeadingAsciiWhitespace(begin);
  return absl::StartsWith(begin, "{") && absl::StartsWith(absl::StripLeadingAsciiWhitespace(begin.substr(1)), "\"");
}

// Whether a file begins with an array of objects. Several lines, each an array, are text.
bool IsJsonArray(absl::string_view begin) {
  absl::ConsumePrefix(&begin, kByteOrderMark);
  begin = absl::StripLeadingAsciiWhitespace(begin);
  if (!absl::ConsumePrefix(&begin, "[") || !IsJson(begin)) return false;
  const size_t end = std::min(begin.find('\n'), begin.size());
  return !absl::EndsWith(absl::StripTrailingAsciiWhitespace(begin.substr(0, end)), "]") ||
         absl::StripAsciiWhitespace(begin.substr(end)).empty();
}

}  // namespace

bool IsTokenFile(const std::string& path) { return path.ends_with(".bin") || path.ends_with(".idx"); }

absl::StatusOr<std::unique_ptr<DocumentFile>> DocumentFile::Open(const std::string& path, const std::string& field,
                                                                 bool blank_lines, std::optional<TextLines>* rest) {
  if (IsTokenFile(path)) return MegatronDocuments::Open(path.substr(0, path.size() - 4));
  HADAL_ASSIGN_OR_RETURN(TextLines lines, TextLines::Open(path));
  const std::string begin = field.empty() ? "" : lines.Beginning();
  if (IsJsonArray(begin)) {
    return InvalidArgumentError(path, " is a JSON array; give an object a line: `jq -c '.[]' FILE > LINES` (of a ",
                                "compressed file, decompress it first), or --text-field '' if it is text");
  }
  if (IsJson(begin)) return std::make_unique<JsonDocuments>(std::move(lines), field);
  if (blank_lines) return std::make_unique<Paragraphs>(std::move(lines));
  if (rest != nullptr) rest->emplace(std::move(lines));
  return nullptr;
}

}  // namespace hadal
