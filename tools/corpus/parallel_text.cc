#include "tools/corpus/parallel_text.h"

#include <functional>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "runtime/data/unicode_text.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

bool IsBlank(const std::string& text) { return StripTrailingSpace(text).empty(); }

bool IsQuoted(const std::string& text) { return text.size() > 1 && text.starts_with('"') && text.ends_with('"'); }

// Whether text is what tables write above a column of sentences.
bool IsTitle(const std::string& text, const Direction& direction) {
  const std::string word = absl::AsciiStrToLower(absl::StripAsciiWhitespace(text));
  for (const std::string& title :
       {std::string("source"), std::string("target"), std::string("src"), std::string("tgt"), std::string("trg"),
        absl::AsciiStrToLower(direction.source), absl::AsciiStrToLower(direction.target)}) {
    if (word == title) return true;
  }
  return false;
}

}  // namespace

std::string CorpusName(const TextPair& pair) {
  if (pair.direction.target.empty()) {
    return pair.source.empty() ? BaseName(pair.target)
                               : absl::StrCat(BaseName(pair.source), " / ", BaseName(pair.target));
  }
  return absl::StrCat(pair.direction.source, "-", pair.direction.target, pair.domain.empty() ? "" : " ", pair.domain);
}

std::vector<std::string> CorpusNames(const std::vector<TextPair>& pairs) {
  std::vector<std::string> names;
  std::set<std::string> used;
  for (const TextPair& pair : pairs) {
    std::string name = CorpusName(pair);
    for (int k = 2; !used.insert(name).second; ++k) name = absl::StrCat(CorpusName(pair), " (", k, ")");
    names.push_back(std::move(name));
  }
  return names;
}

absl::StatusOr<ParallelReader> ParallelReader::Open(const TextPair& pair) {
  ParallelReader reader;
  reader.pair_ = pair;
  if (pair.one_file) {
    HADAL_ASSIGN_OR_RETURN(reader.pairs_, PairFile::Open(pair.target, pair.direction, pair.reversed));
  } else if (pair.source.empty() && pair.features.empty()) {
    HADAL_ASSIGN_OR_RETURN(reader.documents_,
                           DocumentFile::Open(pair.target, pair.text_field, pair.blank_lines, &reader.target_));
  } else if (!pair.source.empty()) {
    HADAL_ASSIGN_OR_RETURN(reader.source_, TextLines::Open(pair.source));
  }
  if (reader.pairs_ != nullptr || reader.documents_ != nullptr || reader.target_) return reader;
  HADAL_ASSIGN_OR_RETURN(reader.target_, TextLines::Open(pair.target));
  return reader;
}

absl::Status ParallelReader::SplitColumns(ParallelLine& line) {
  const std::string whole = std::move(line.target);
  line.source.clear();
  line.target.clear();
  if (IsBlank(whole)) return absl::OkStatus();
  const size_t tab = whole.find('\t');
  if (tab == std::string::npos) {
    return InvalidArgumentError(
        target_->Place(),
        ": no tab; each line must be a sentence, a tab, and its translation (or the file TMX or JSON Lines)");
  }
  const size_t next = whole.find('\t', tab + 1);
  more_columns_ += next == std::string::npos ? 0 : 1;
  line.source = whole.substr(0, tab);
  line.target = whole.substr(tab + 1, next - tab - 1);
  has_header_ |= line.number == 1 && IsTitle(line.source, pair_.direction) && IsTitle(line.target, pair_.direction);
  quoted_ += IsQuoted(line.source) && IsQuoted(line.target) ? 1 : 0;
  if (pair_.reversed) std::swap(line.source, line.target);
  return absl::OkStatus();
}

std::string ParallelReader::Oddity() const {
  if (2 * quoted_ > lines_) {
    return absl::StrCat(pair_.target, ": in ", quoted_, " of ", lines_,
                        " lines both sides are in double quotes, which stay part of the text; if they are a table's, "
                        "write it without them (Python's csv module with delimiter=\"\\t\" reads it)");
  }
  if (has_header_) {
    return absl::StrCat(pair_.target, ":1 looks like a header, and is kept as a pair; delete that line if it is one");
  }
  return "";
}

absl::Status ParallelReader::UnequalCounts(TextLines& longer, const TextLines& shorter) const {
  std::string line;
  while (longer.NextUnchecked(line).value_or(false)) continue;
  return InvalidArgumentError(longer.name(), " has ", longer.lines(), " lines, ", shorter.name(), " has ", lines_,
                              "; line n of one must translate line n of the other");
}

absl::StatusOr<bool> ParallelReader::NextLines(ParallelLine& line) {
  bool has_source = false;
  if (source_) {
    HADAL_ASSIGN_OR_RETURN(has_source, source_->NextUnchecked(line.source));
  }
  HADAL_ASSIGN_OR_RETURN(const bool has_target, target_->NextUnchecked(line.target));
  if (source_ && has_source != has_target) {
    return has_source ? UnequalCounts(*source_, *target_) : UnequalCounts(*target_, *source_);
  }
  if (!has_target) return false;
  if (source_) {
    line.invalid = source_->Fault(line.source);
  } else if (pair_.one_file) {
    HADAL_RETURN_IF_ERROR(SplitColumns(line));
    line.invalid = target_->Fault(line.source, pair_.reversed ? 2 : 1);
  }
  const int column = !pair_.one_file ? 0 : pair_.reversed ? 1 : 2;
  if (line.invalid.empty()) line.invalid = target_->Fault(line.target, column);
  return true;
}

absl::StatusOr<bool> ParallelReader::Next(ParallelLine& line) {
  line.number = lines_ + 1;
  line.invalid.clear();
  line.has_ids = documents_ != nullptr && documents_->has_ids();
  bool more = false;
  if (pairs_ != nullptr) {
    HADAL_ASSIGN_OR_RETURN(more, pairs_->Next(line.source, line.target, line.invalid));
  } else if (documents_ != nullptr) {
    HADAL_ASSIGN_OR_RETURN(more, documents_->Next(line.target, line.invalid));
    line.number = documents_->place();
  } else {
    HADAL_ASSIGN_OR_RETURN(more, NextLines(line));
  }
  if (!more) return false;
  ++lines_;
  line.empty = (!pair_.source.empty() && IsBlank(line.source)) || IsBlank(line.target);
  return true;
}

uint64_t HashOfPair(const Direction& direction, const ParallelLine& line) {
  return std::hash<std::string>()(
      absl::StrCat(direction.source, "-", direction.target, "\n", line.source, "\n", line.target));
}

RepeatedText::RepeatedText(const std::vector<TextPair>& texts) {
  for (const TextPair& text : texts) {
    texts_.push_back(
        {.direction = absl::StrCat(text.direction.source, "-", text.direction.target), .plain = text.source.empty()});
  }
  std::set<std::string> later;
  for (auto text = texts_.rbegin(); text != texts_.rend(); ++text) text->last = later.insert(text->direction).second;
}

RepeatedText::Repeated RepeatedText::Add(size_t text, const ParallelLine& line, uint64_t hash) {
  for (; text_ < text; ++text_) {
    if (texts_[text_].last) seen_.erase(texts_[text_].direction);
  }
  Seen& seen = seen_[texts_[text].direction];
  Repeated repeated = {.pair = !seen.pairs.insert(hash).second};
  if (texts_[text].plain) return repeated;
  const std::hash<std::string> hash_side;
  repeated.source = !seen.sources.insert(hash_side(line.source)).second;
  repeated.target = !seen.targets.insert(hash_side(line.target)).second;
  return repeated;
}

}  // namespace hadal
