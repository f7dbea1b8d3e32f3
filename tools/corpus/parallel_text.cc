#include "tools/corpus/parallel_text.h"

#include <functional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "runtime/data/unicode_text.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"
#include "runtime/text.h"
#include "tools/corpus/text_lines.h"

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

absl::StatusOr<ParallelReader::Side> ParallelReader::OpenSide(const std::string& path) {
  HADAL_ASSIGN_OR_RETURN(std::unique_ptr<std::istream> in, OpenText(path));
  return Side{.path = path, .in = std::move(in)};
}

absl::StatusOr<ParallelReader> ParallelReader::Open(const TextPair& pair) {
  std::unique_ptr<DocumentFile> documents;
  if (pair.source.empty() && !pair.one_file && pair.features.empty()) {
    HADAL_ASSIGN_OR_RETURN(documents, DocumentFile::Open(pair.target, pair.text_field, pair.blank_lines));
  }
  Side target{.path = pair.target};
  if (documents == nullptr) {
    HADAL_ASSIGN_OR_RETURN(target, OpenSide(pair.target));
  }
  ParallelReader reader(std::move(target));
  reader.pair_ = pair;
  reader.documents_ = std::move(documents);
  if (pair.one_file) {
    HADAL_ASSIGN_OR_RETURN(reader.pairs_, PairFile::Open(pair.target, pair.direction, pair.reversed));
  } else if (!pair.source.empty()) {
    HADAL_ASSIGN_OR_RETURN(reader.source_, OpenSide(pair.source));
  }
  return reader;
}

absl::StatusOr<bool> ParallelReader::NextLine(Side& side, int64_t number, std::string& line) {
  if (!ReadLine(*side.in, line)) {
    if (side.in->bad()) return ReadLineError(side.path, number - 1, line);
    line.clear();
    return false;
  }
  if (number == 1) HADAL_RETURN_IF_ERROR(CheckIsPlainText(side.path, line, *side.in));
  if (number == 1 && line.starts_with(kByteOrderMark)) {
    line.erase(0, sizeof(kByteOrderMark) - 1);
    side.had_byte_order_mark = true;
  }
  if (line.ends_with('\r')) {
    line.pop_back();
    ++side.carriage_returns;
  }
  return true;
}

absl::Status ParallelReader::SplitColumns(ParallelLine& line) {
  const std::string whole = std::move(line.target);
  line.source.clear();
  line.target.clear();
  if (IsBlank(whole)) return absl::OkStatus();
  const size_t tab = whole.find('\t');
  if (tab == std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(
        target_.path, ":", line.number,
        ": no tab; each line must be a sentence, a tab, and its translation (or the file TMX or JSON Lines)"));
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
    return absl::StrCat(target_.path, ": in ", quoted_, " of ", lines_,
                        " lines both sides are in double quotes, which stay part of the text; if they are a table's, "
                        "write it without them (Python's csv module with delimiter=\"\\t\" reads it)");
  }
  if (has_header_) {
    return absl::StrCat(target_.path, ":1 looks like a header, and is kept as a pair; delete that line if it is one");
  }
  return "";
}

void ParallelReader::Validate(const Side& side, int64_t number, int column, const std::string& text,
                              std::string& invalid) {
  const size_t valid = ValidUtf8Prefix(text);
  if (valid == text.size() || !invalid.empty()) return;
  invalid = absl::StrCat(side.path, ":", number, ": not UTF-8 from byte ", valid + 1, " of ",
                         column == 0 ? "the line" : absl::StrCat("column ", column), " on");
}

absl::Status ParallelReader::UnequalCounts(Side& longer, const Side& shorter) {
  int64_t rest = 1;
  std::string line;
  while (ReadLine(*longer.in, line)) ++rest;
  return absl::InvalidArgumentError(absl::StrCat(longer.path, " has ", lines_ + rest, " lines, ", shorter.path, " has ",
                                                 lines_, "; line n of one must translate line n of the other"));
}

absl::StatusOr<bool> ParallelReader::Next(ParallelLine& line) {
  line.number = lines_ + 1;
  line.invalid.clear();
  line.has_ids = documents_ != nullptr && documents_->has_ids();
  bool has_source = false, has_target = false;
  if (pairs_ != nullptr) {
    HADAL_ASSIGN_OR_RETURN(has_target, pairs_->Next(line.source, line.target, line.invalid));
  } else if (documents_ != nullptr) {
    HADAL_ASSIGN_OR_RETURN(has_target, documents_->Next(line.target, line.invalid));
    line.number = documents_->place();
  } else {
    if (source_) {
      HADAL_ASSIGN_OR_RETURN(has_source, NextLine(*source_, line.number, line.source));
    }
    HADAL_ASSIGN_OR_RETURN(has_target, NextLine(target_, line.number, line.target));
  }
  if (!has_source && !has_target) return false;
  if (!has_target) return UnequalCounts(*source_, target_);
  if (source_ && !has_source) return UnequalCounts(target_, *source_);
  ++lines_;
  const bool columns = pair_.one_file && pairs_ == nullptr;
  if (columns) HADAL_RETURN_IF_ERROR(SplitColumns(line));
  if (source_ || columns) {
    Validate(source_ ? *source_ : target_, line.number,
             !columns         ? 0
             : pair_.reversed ? 2
                              : 1,
             line.source, line.invalid);
  }
  Validate(target_, line.number, !columns ? 0 : pair_.reversed ? 1 : 2, line.target, line.invalid);
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
