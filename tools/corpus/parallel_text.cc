#include "tools/corpus/parallel_text.h"

#include <functional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/data/unicode_text.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"
#include "runtime/text_line.h"
#include "runtime/utf8.h"
#include "tools/corpus/text_lines.h"

namespace hadal {
namespace {

bool IsBlank(const std::string& text) { return StripTrailingSpace(text).empty(); }

}  // namespace

std::string CorpusName(const TextPair& pair) {
  if (pair.direction.target.empty()) {
    return pair.source.empty() ? BaseName(pair.target)
                               : absl::StrCat(BaseName(pair.source), " / ", BaseName(pair.target));
  }
  return absl::StrCat(pair.direction.source, "-", pair.direction.target, pair.domain.empty() ? "" : " ", pair.domain);
}

absl::StatusOr<ParallelReader::Side> ParallelReader::OpenSide(const std::string& path, int column) {
  HADAL_ASSIGN_OR_RETURN(std::unique_ptr<std::istream> in, OpenText(path));
  return Side{.path = path, .in = std::move(in), .column = column};
}

absl::StatusOr<ParallelReader> ParallelReader::Open(const TextPair& pair) {
  std::optional<Side> source;
  if (!pair.source.empty()) {
    HADAL_ASSIGN_OR_RETURN(source, OpenSide(pair.source, !pair.columns ? 0 : pair.reversed ? 2 : 1));
  }
  HADAL_ASSIGN_OR_RETURN(Side target, OpenSide(pair.target, !pair.columns ? 0 : pair.reversed ? 1 : 2));
  ParallelReader reader(std::move(target));
  reader.source_ = std::move(source);
  return reader;
}

absl::StatusOr<bool> ParallelReader::NextLine(Side& side, int64_t number, std::string& line) {
  if (!ReadLine(*side.in, line)) {
    if (side.in->bad()) return ReadLineError(side.path, number - 1, line);
    line.clear();
    return false;
  }
  if (number == 1) HADAL_RETURN_IF_ERROR(CheckIsPlainText(side.path, line));
  if (number == 1 && line.starts_with(kByteOrderMark)) {
    line.erase(0, sizeof(kByteOrderMark) - 1);
    side.had_byte_order_mark = true;
  }
  if (line.ends_with('\r')) {
    line.pop_back();
    ++side.carriage_returns;
  }
  if (side.column == 0) return true;
  if (IsBlank(line)) return true;  // both sides are empty
  const size_t tab = line.find('\t');
  if (tab == std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(side.path, ":", number,
                                                   ": no tab; each line must be a sentence, a "
                                                   "tab, and its translation"));
  }
  const size_t next = line.find('\t', tab + 1);
  side.more_columns += next == std::string::npos ? 0 : 1;
  line = side.column == 1 ? line.substr(0, tab) : line.substr(tab + 1, next - tab - 1);
  return true;
}

void ParallelReader::Validate(const Side& side, int64_t number, const std::string& line, std::string& invalid) {
  const size_t valid = ValidUtf8Prefix(line);
  if (valid == line.size() || !invalid.empty()) return;
  invalid = absl::StrCat(side.path, ":", number, ": not UTF-8 from byte ", valid + 1, " of ",
                         side.column == 0 ? "the line" : absl::StrCat("column ", side.column), " on");
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
  bool has_source = false;
  if (source_) {
    HADAL_ASSIGN_OR_RETURN(has_source, NextLine(*source_, line.number, line.source));
  }
  HADAL_ASSIGN_OR_RETURN(const bool has_target, NextLine(target_, line.number, line.target));
  if (!has_source && !has_target) return false;
  if (!has_target) return UnequalCounts(*source_, target_);
  if (source_ && !has_source) return UnequalCounts(target_, *source_);
  ++lines_;
  line.invalid.clear();
  if (source_) Validate(*source_, line.number, line.source, line.invalid);
  Validate(target_, line.number, line.target, line.invalid);
  line.empty = (source_ && IsBlank(line.source)) || IsBlank(line.target);
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
