#include "runtime/data/bleu.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <unordered_map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "runtime/check.h"
#include "runtime/data/unicode_text.h"
#include "runtime/math.h"

namespace hadal {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsPeriodOrComma(char c) { return c == '.' || c == ','; }

// Rule 2's set: the space and all ASCII punctuation except . , - '
bool IsSetOff(char c) {
  return (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') || c == '/' || (c >= ':' && c <= '@') ||
         (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

// Rule 1.
std::string Normalize(std::string_view text) {
  std::string line(text);
  const auto replace = [&line](std::string_view from, std::string_view to) {
    absl::StrReplaceAll({{absl::string_view(from.data(), from.size()), absl::string_view(to.data(), to.size())}},
                        &line);
  };
  replace("<skipped>", "");
  replace("-\n", "");
  replace("\n", " ");
  if (line.find('&') == std::string::npos) return line;
  replace("&quot;", "\"");
  replace("&amp;", "&");
  replace("&lt;", "<");
  replace("&gt;", ">");
  return line;
}

// Rule 2.
std::string SetOffPunctuation(std::string_view in) {
  std::string out;
  out.reserve(in.size() * 2);
  for (const char c : in) {
    if (IsSetOff(c)) {
      out += ' ';
      out += c;
      out += ' ';
    } else {
      out += c;
    }
  }
  return out;
}

// Copies `in`. Where `first(in[i]) && second(in[i + 1])` holds, writes the pair with the given spaces around its parts
// and continues after it. Working on bytes is exact: no byte of a multi-byte character is a digit, a period, a comma or
// a dash.
template <typename First, typename Second>
std::string SetOffPairs(std::string_view in, First first, Second second, std::string_view before,
                        std::string_view between, std::string_view after) {
  std::string out;
  out.reserve(in.size() + in.size() / 4);
  for (size_t i = 0; i < in.size(); ++i) {
    if (i + 1 < in.size() && first(in[i]) && second(in[i + 1])) {
      out += before;
      out += in[i];
      out += between;
      out += in[++i];
      out += after;
    } else {
      out += in[i];
    }
  }
  return out;
}

// Rules 2 to 5.
std::vector<std::string> SplitWestern(std::string line) {
  const auto not_digit = [](char c) { return !IsDigit(c); };
  line = SetOffPunctuation(line);
  line = SetOffPairs(line, not_digit, IsPeriodOrComma, "", " ", " ");
  line = SetOffPairs(line, IsPeriodOrComma, not_digit, " ", " ", "");
  line = SetOffPairs(
      line, IsDigit, [](char c) { return c == '-'; }, "", " ", " ");
  const std::vector<std::string_view> tokens = SplitAtSpace(line);
  return {tokens.begin(), tokens.end()};
}

struct Range {
  uint32_t first = 0, last = 0;
};
constexpr Range kChinese[] = {{0x2001, 0x2A6D}, {0x2E80, 0x2FDF}, {0x2FF0, 0x303F}, {0x3100, 0x312F}, {0x31A0, 0x31BF},
                              {0x31C0, 0x31EF}, {0x3200, 0x33FF}, {0x3400, 0x4DB5}, {0x4E00, 0x9FBB}, {0xF900, 0xFA2D},
                              {0xFA30, 0xFA6A}, {0xFA70, 0xFAD9}, {0xFE10, 0xFE1F}, {0xFE30, 0xFE4F}, {0xFF00, 0xFFEF}};

bool IsChinese(uint32_t character) {
  return std::ranges::any_of(kChinese,
                             [&](const Range& range) { return character >= range.first && character <= range.last; });
}

// Calls `take(character, its bytes)` for every character of `text`.
template <typename Take>
void ForEachCharacter(std::string_view text, Take take) {
  while (!text.empty()) {
    const std::string_view from = text;
    const uint32_t character = TakeCharacter(text);
    take(character, from.substr(0, from.size() - text.size()));
  }
}

std::vector<std::string> Tokenize13a(std::string_view text) {
  return SplitWestern(absl::StrCat(" ", Normalize(StripTrailingSpace(text)), " "));
}

std::vector<std::string> TokenizeChar(std::string_view text) {
  std::vector<std::string> tokens;
  ForEachCharacter(text, [&](uint32_t, std::string_view bytes) {
    if (LeadingSpaceBytes(bytes) == 0) tokens.emplace_back(bytes);
  });
  return tokens;
}

std::vector<std::string> TokenizeZh(std::string_view text) {
  text = StripTrailingSpace(text);
  while (const size_t bytes = LeadingSpaceBytes(text)) text.remove_prefix(bytes);
  std::string line;
  ForEachCharacter(text, [&](uint32_t character, std::string_view bytes) {
    const char* const around = IsChinese(character) ? " " : "";
    absl::StrAppend(&line, around, absl::string_view(bytes.data(), bytes.size()), around);
  });
  return SplitWestern(std::move(line));
}

using TokenIds = std::vector<int32_t>;

// Numbers the distinct tokens of one segment.
class SegmentVocabulary {
 public:
  TokenIds Ids(BleuTokenizer tokenizer, const std::string& text) {
    TokenIds ids;
    for (std::string& token : TokenizeForBleu(tokenizer, text)) {
      ids.push_back(ids_.try_emplace(std::move(token), static_cast<int32_t>(ids_.size())).first->second);
    }
    return ids;
  }

 private:
  std::unordered_map<std::string, int32_t> ids_;
};

int64_t ClosestLength(int64_t length, const std::vector<TokenIds>& references) {
  int64_t closest = static_cast<int64_t>(references.front().size());
  for (const TokenIds& reference : references) {
    const int64_t candidate = static_cast<int64_t>(reference.size());
    const int64_t gain = std::abs(length - closest) - std::abs(length - candidate);
    if (gain > 0 || (gain == 0 && candidate < closest)) closest = candidate;
  }
  return closest;
}

}  // namespace

NgramCounts CountNgrams(absl::Span<const int32_t> tokens, int order) {
  HADAL_CHECK(order >= 1 && order <= kMostNgramOrder);
  std::vector<Ngram> ngrams;
  for (size_t begin = 0; begin + order <= tokens.size(); ++begin) {
    Ngram ngram{};
    std::copy_n(tokens.begin() + begin, order, ngram.begin());
    ngrams.push_back(ngram);
  }
  std::sort(ngrams.begin(), ngrams.end());
  NgramCounts counts;
  for (const Ngram& ngram : ngrams) {
    if (counts.empty() || counts.back().first != ngram) counts.emplace_back(ngram, 0);
    ++counts.back().second;
  }
  return counts;
}

int64_t CountOf(const NgramCounts& counts, const Ngram& ngram) {
  const auto at = std::ranges::lower_bound(counts, ngram, {}, &NgramCounts::value_type::first);
  return at != counts.end() && at->first == ngram ? at->second : 0;
}

BleuTokenizer BleuTokenizerOf(std::string_view language) {
  const std::string code = absl::AsciiStrToLower(std::string(language.substr(0, language.find('_'))));
  for (const std::string_view chinese : {"zh", "zho", "chi", "cmn", "yue", "wuu"}) {
    if (code == chinese) return BleuTokenizer::kZh;
  }
  for (const std::string_view unspaced : {"ja", "jpn", "th", "tha", "lo", "lao", "km", "khm", "my", "mya", "bur", "bo",
                                          "bod", "tib", "dz", "dzo", "shn"}) {
    if (code == unspaced) return BleuTokenizer::kChar;
  }
  return BleuTokenizer::k13a;
}

std::vector<std::string> TokenizeForBleu(BleuTokenizer tokenizer, std::string_view text) {
  switch (tokenizer) {
    case BleuTokenizer::kChar:
      return TokenizeChar(text);
    case BleuTokenizer::kZh:
      return TokenizeZh(text);
    case BleuTokenizer::k13a:
      break;
  }
  return Tokenize13a(text);
}

BleuCounts& BleuCounts::operator+=(const BleuCounts& other) {
  for (int n = 0; n < kBleuOrders; ++n) {
    matches[n] += other.matches[n];
    totals[n] += other.totals[n];
  }
  hypothesis_tokens += other.hypothesis_tokens;
  reference_tokens += other.reference_tokens;
  return *this;
}

BleuCounts CountBleuMatches(const std::string& hypothesis, absl::Span<const std::string> references,
                            BleuTokenizer tokenizer) {
  HADAL_CHECK(!references.empty());
  SegmentVocabulary vocabulary;
  const TokenIds tokens = vocabulary.Ids(tokenizer, hypothesis);
  std::vector<TokenIds> reference_tokens;
  for (const std::string& reference : references) reference_tokens.push_back(vocabulary.Ids(tokenizer, reference));

  BleuCounts counts;
  counts.hypothesis_tokens = static_cast<int64_t>(tokens.size());
  counts.reference_tokens = ClosestLength(counts.hypothesis_tokens, reference_tokens);
  for (int order = 1; order <= kBleuOrders; ++order) {
    std::vector<NgramCounts> reference_ngrams;
    reference_ngrams.reserve(reference_tokens.size());
    for (const TokenIds& reference : reference_tokens) reference_ngrams.push_back(CountNgrams(reference, order));
    for (const auto& [ngram, count] : CountNgrams(tokens, order)) {
      int64_t allowed = 0;  // the n-gram's largest count in any one reference
      for (const NgramCounts& ngrams : reference_ngrams) allowed = std::max(allowed, CountOf(ngrams, ngram));
      counts.matches[order - 1] += std::min(count, allowed);
      counts.totals[order - 1] += count;
    }
  }
  return counts;
}

BleuScore BleuFromCounts(const BleuCounts& counts) {
  BleuScore result;
  result.counts = counts;
  const double hypothesis = static_cast<double>(counts.hypothesis_tokens);
  const double reference = static_cast<double>(counts.reference_tokens);
  if (counts.hypothesis_tokens < counts.reference_tokens) {
    result.brevity_penalty = counts.hypothesis_tokens > 0 ? Exp(1 - reference / hypothesis) : 0.0;
  }
  if (std::all_of(counts.matches.begin(), counts.matches.end(), [](int64_t m) { return m == 0; })) return result;

  double smoothing = 1;
  double log_sum = 0;
  bool every_order_exists = true;
  for (int n = 0; n < kBleuOrders; ++n) {
    const double total = static_cast<double>(counts.totals[n]);
    if (counts.totals[n] == 0) {
      every_order_exists = false;
      break;
    }
    if (counts.matches[n] == 0) {
      smoothing *= 2;
      result.precisions[n] = 100.0 / (smoothing * total);
    } else {
      result.precisions[n] = 100.0 * static_cast<double>(counts.matches[n]) / total;
    }
    log_sum += Log(result.precisions[n]);
  }
  if (every_order_exists) result.score = result.brevity_penalty * Exp(log_sum / kBleuOrders);
  return result;
}

std::string BleuSignature(int references, BleuTokenizer tokenizer) {
  return absl::StrCat("nrefs:", references, "|case:mixed|eff:no|tok:", ToWord(kBleuTokenizers, tokenizer),
                      "|smooth:exp|version:", kSacrebleuVersion);
}

std::string BleuDetails(const BleuScore& score) {
  const BleuCounts& counts = score.counts;
  const double ratio = counts.reference_tokens == 0 ? 0.0
                                                    : static_cast<double>(counts.hypothesis_tokens) /
                                                          static_cast<double>(counts.reference_tokens);
  return absl::StrFormat("%.1f/%.1f/%.1f/%.1f (BP = %.3f ratio = %.3f hyp_len = %d ref_len = %d)", score.precisions[0],
                         score.precisions[1], score.precisions[2], score.precisions[3], score.brevity_penalty, ratio,
                         counts.hypothesis_tokens, counts.reference_tokens);
}

}  // namespace hadal
