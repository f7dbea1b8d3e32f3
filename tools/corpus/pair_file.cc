#include "tools/corpus/parallel_text.h"

#include <expat.h>

#include <algorithm>
#include <array>
#include <deque>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "runtime/json_fields.h"
#include "runtime/status_macros.h"
#include "runtime/text.h"
#include "tools/corpus/text_lines.h"

namespace hadal {
namespace {

// 2: the language itself, 1: one of its regions, 0: another.
int LanguageMatch(std::string_view wanted, std::string_view given) {
  const auto plain = [](std::string_view code) {
    return absl::StrReplaceAll(absl::AsciiStrToLower(absl::string_view(code.data(), code.size())), {{"-", "_"}});
  };
  const std::string language = plain(wanted), other = plain(given);
  if (language == other) return 2;
  return other.starts_with(language + "_") ? 1 : 0;
}

std::string CollapseSpace(absl::string_view text) {
  return absl::StrJoin(absl::StrSplit(text, absl::ByAnyChar(" \t\r\n\f\v"), absl::SkipEmpty()), " ");
}

// One side of a pair: the text whose language fits best, the first of equals.
struct Side {
  std::string language, text;
  int match = 0;

  void Offer(std::string_view given, absl::string_view offered) {
    const int offered_match = LanguageMatch(language, given);
    if (offered_match <= match) return;
    match = offered_match;
    text = CollapseSpace(offered);
  }
};

// The languages that a file has instead of the requested ones.
class LanguagesSeen {
 public:
  void Add(std::string_view language) {
    if (names_.size() < 20) names_.insert(Printable(language));
  }
  absl::Status Missing(const std::string& path, const char* unit, const Side& source, const Side& target) const {
    return InvalidArgumentError(path, ": no ", unit, " has text in both \"", source.language, "\" and \"",
                                target.language, "\"; it has ",
                                names_.empty() ? "no text" : absl::StrJoin(names_, ", "));
  }

 private:
  std::set<std::string> names_;
};

class TmxFile : public PairFile {
 public:
  TmxFile(std::string path, std::unique_ptr<std::istream> in, const Direction& direction)
      : path_(std::move(path)), in_(std::move(in)), parser_(XML_ParserCreate(nullptr), XML_ParserFree) {
    source_.language = direction.source;
    target_.language = direction.target;
    XML_SetUserData(parser_.get(), this);
    XML_SetElementHandler(
        parser_.get(),
        [](void* self, const char* name, const char** attributes) {
          static_cast<TmxFile*>(self)->Begin(name, attributes);
        },
        [](void* self, const char* name) { static_cast<TmxFile*>(self)->End(name); });
    XML_SetCharacterDataHandler(parser_.get(), [](void* self, const char* text, int bytes) {
      static_cast<TmxFile*>(self)->Text({text, static_cast<size_t>(bytes)});
    });
  }

  absl::StatusOr<bool> Next(std::string& source, std::string& target, std::string& invalid) override {
    invalid.clear();
    while (pairs_.empty() && !ended_) HADAL_RETURN_IF_ERROR(ReadPart());
    if (pairs_.empty()) {
      if (!matched_) return languages_.Missing(path_, "translation unit", source_, target_);
      return false;
    }
    std::tie(source, target) = std::move(pairs_.front());
    pairs_.pop_front();
    return true;
  }

 private:
  absl::Status ReadPart() {
    std::array<char, size_t{1} << 16> part;
    in_->read(part.data(), part.size());
    if (in_->bad()) return ReadLineError(path_, 0, "");
    ended_ = in_->eof();
    if (XML_Parse(parser_.get(), part.data(), static_cast<int>(in_->gcount()), ended_) == XML_STATUS_OK) {
      return absl::OkStatus();
    }
    const XML_Error error = XML_GetErrorCode(parser_.get());
    const std::string what = too_long_ ? absl::StrCat("a segment of more than ", kMostLineBytes, " bytes")
                                       : absl::StrCat("not well-formed XML: ", XML_ErrorString(error));
    return InvalidArgumentError(path_, ":", XML_GetCurrentLineNumber(parser_.get()), ":",
                                XML_GetCurrentColumnNumber(parser_.get()) + 1, ": ", what,
                                error == XML_ERROR_UNKNOWN_ENCODING
                                    ? "; convert it to UTF-8 (iconv), and name that in its first line"
                                    : "; is the file whole? `xmllint --noout FILE` finds such places");
  }

  static bool IsCode(std::string_view name) {
    return name == "bpt" || name == "ept" || name == "it" || name == "ph" || name == "ut";
  }

  void Begin(std::string_view name, const char** attributes) {
    if (in_segment_) {
      codes_ += IsCode(name) || codes_ > 0 ? 1 : 0;  // all that is within a code, too
    } else if (name == "tu") {
      source_ = {.language = source_.language};
      target_ = {.language = target_.language};
    } else if (name == "tuv") {
      language_.clear();
      for (; *attributes != nullptr; attributes += 2) {
        const std::string_view key = attributes[0];
        if (key == "xml:lang" || (key == "lang" && language_.empty())) language_ = attributes[1];
      }
    } else if (name == "seg") {
      in_segment_ = true;
      codes_ = 0;
      segment_.clear();
    }
  }

  void Text(std::string_view text) {
    if (!in_segment_ || codes_ > 0) return;
    segment_ += text;
    if (segment_.size() <= kMostLineBytes) return;
    too_long_ = true;
    XML_StopParser(parser_.get(), XML_FALSE);
  }

  void End(std::string_view name) {
    if (codes_ > 0) {
      --codes_;
    } else if (name == "seg") {
      in_segment_ = false;
      languages_.Add(language_);
      source_.Offer(language_, segment_);
      target_.Offer(language_, segment_);
    } else if (name == "tu") {
      matched_ |= source_.match > 0 && target_.match > 0;
      pairs_.emplace_back(source_.text, target_.text);
    }
  }

  const std::string path_;
  std::unique_ptr<std::istream> in_;
  std::unique_ptr<XML_ParserStruct, decltype(&XML_ParserFree)> parser_;
  std::deque<std::pair<std::string, std::string>> pairs_;  // read and not yet returned
  Side source_, target_;                                   // of the present unit
  std::string language_, segment_;                         // of the present variant
  LanguagesSeen languages_;
  int codes_ = 0;  // elements that are open from the outermost code on
  bool in_segment_ = false, ended_ = false, matched_ = false, too_long_ = false;
};

class JsonLines : public PairFile {
 public:
  JsonLines(TextLines lines, const Direction& direction, bool reversed)
      : lines_(std::move(lines)), direction_(direction), reversed_(reversed) {}

  absl::StatusOr<bool> Next(std::string& source, std::string& target, std::string& invalid) override {
    Side from{.language = direction_.source}, to{.language = direction_.target};
    HADAL_ASSIGN_OR_RETURN(const bool more, lines_.NextUnchecked(line_));
    if (!more && lines_.lines() > 0 && !matched_) return keys_.Missing(lines_.name(), "line", from, to);
    if (!more) return false;
    invalid = lines_.Fault(line_);
    if (invalid.empty() && !absl::StripAsciiWhitespace(line_).empty()) {
      HADAL_RETURN_IF_ERROR(Take(lines_.Place(), from, to, invalid));
    }
    source = std::move(from.text);
    target = std::move(to.text);
    return true;
  }

 private:
  absl::Status Take(const std::string& place, Side& from, Side& to, std::string& invalid) {
    const StrictJsonLimits limits{.max_bytes = int64_t{kMostLineBytes}, .max_depth = 64};
    const absl::StatusOr<nlohmann::json> line = ParseStrictJson(line_, limits, place);
    invalid = std::string(line.status().message());
    if (!line.ok()) return absl::OkStatus();
    if (!line->is_object()) return InvalidArgumentError(place, ": not a JSON object; each line must be one");
    const bool nested = line->contains("translation") && (*line)["translation"].is_object();
    const nlohmann::json& object = nested ? (*line)["translation"] : *line;
    constexpr std::pair<const char*, const char*> kSides[] = {{"source", "target"}, {"src", "tgt"}};
    const bool has_sides = std::ranges::any_of(
        kSides, [&](const auto& keys) { return object.contains(keys.first) && object.contains(keys.second); });
    const auto offer = [&](const std::string& key, std::string_view language, Side& side) {
      const nlohmann::json& value = object[key];
      const int match = LanguageMatch(side.language, language);
      const bool may_be_other = match == 1 || (has_sides && key == language);  // as "en_score", "id"
      if (match == 0 || value.is_null() || (may_be_other && !value.is_string())) return absl::OkStatus();
      if (!value.is_string()) return InvalidArgumentError(place, ": \"", Printable(key), "\" is not text");
      side.Offer(language, value.get_ref<const std::string&>());
      return absl::OkStatus();
    };
    for (const auto& [key, value] : object.items()) {
      keys_.Add(key);
      HADAL_RETURN_IF_ERROR(offer(key, key, from));
      HADAL_RETURN_IF_ERROR(offer(key, key, to));
    }
    for (const auto& [source, target] : kSides) {
      if (!object.contains(source) || !object.contains(target)) continue;
      // Keys such as "de_url" and "en_url" may be no text; with one language alone they are.
      const bool regions = from.match == 1 && to.match == 1 && object[source].is_string() && object[target].is_string();
      if (from.match > 0 && to.match > 0 && !regions) continue;
      Side &first = reversed_ ? to : from, &second = reversed_ ? from : to;
      for (Side* side : {&first, &second}) *side = {.language = side->language};  // of a region, or a key such as "id"
      HADAL_RETURN_IF_ERROR(offer(source, first.language, first));
      HADAL_RETURN_IF_ERROR(offer(target, second.language, second));
    }
    matched_ |= from.match > 0 && to.match > 0;
    return absl::OkStatus();
  }

  TextLines lines_;
  const Direction direction_;
  const bool reversed_;
  LanguagesSeen keys_;
  std::string line_;
  bool matched_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PairFile>> PairFile::Open(const std::string& path, const Direction& direction,
                                                         bool reversed) {
  HADAL_ASSIGN_OR_RETURN(std::unique_ptr<std::istream> in, OpenText(path));
  std::array<char, 256> bytes;
  in->read(bytes.data(), bytes.size());
  std::string begin(bytes.data(), static_cast<size_t>(in->gcount()));
  if (begin.starts_with("\xFF\xFE") || begin.starts_with("\xFE\xFF")) std::erase(begin, '\0');  // UTF-16
  for (const absl::string_view mark : {kByteOrderMark, "\xFF\xFE", "\xFE\xFF"}) {
    if (absl::StartsWith(begin, mark)) begin.erase(0, mark.size());
  }
  const absl::string_view text = absl::StripLeadingAsciiWhitespace(begin);
  const bool is_xml = absl::StartsWith(text, "<?xml") || absl::StartsWith(text, "<tmx");
  const bool is_json =
      absl::StartsWith(text, "{") && absl::StartsWith(absl::StripLeadingAsciiWhitespace(text.substr(1)), "\"");
  if (!is_xml && !is_json) return nullptr;
  if (is_json) {
    HADAL_ASSIGN_OR_RETURN(TextLines lines, TextLines::Open(path));
    return std::make_unique<JsonLines>(std::move(lines), direction, reversed);
  }
  HADAL_ASSIGN_OR_RETURN(in, OpenText(path));  // from the beginning
  return std::make_unique<TmxFile>(path, std::move(in), direction);
}

}  // namespace hadal
