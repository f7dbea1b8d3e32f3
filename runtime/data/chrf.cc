#include "runtime/data/chrf.h"

#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/check.h"
#include "runtime/data/bleu.h"
#include "runtime/data/unicode_text.h"

namespace hadal {
namespace {

bool IsPunctuation(char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

std::vector<int32_t> Characters(std::string_view text) {
  std::vector<int32_t> characters;
  for (std::string_view word : SplitAtSpace(text)) {
    while (!word.empty()) characters.push_back(static_cast<int32_t>(TakeCharacter(word)));
  }
  return characters;
}

// Numbers the distinct words of one segment. The words must outlive the object.
class WordNumbers {
 public:
  std::vector<int32_t> Of(std::string_view text) {
    std::vector<int32_t> numbers;
    const auto add = [&](std::string_view word) {
      numbers.push_back(numbers_.try_emplace(word, static_cast<int32_t>(numbers_.size())).first->second);
    };
    for (const std::string_view word : SplitAtSpace(text)) {
      const bool last = word.size() > 1 && IsPunctuation(word.back());
      const size_t first_bytes = last ? word.size() - 1 : word.size() > 1 && IsPunctuation(word.front()) ? 1 : 0;
      if (first_bytes > 0) add(word.substr(0, first_bytes));
      add(word.substr(first_bytes));
    }
    return numbers;
  }

 private:
  std::unordered_map<std::string_view, int32_t> numbers_;
};

// Counts of all orders of one text.
std::vector<NgramCounts> CountAll(std::string_view text, int word_order, WordNumbers& words) {
  std::vector<NgramCounts> counts;
  const std::vector<int32_t> characters = Characters(text);
  for (int n = 1; n <= kChrfCharacterOrders; ++n) counts.push_back(CountNgrams(characters, n));
  const std::vector<int32_t> numbers = word_order > 0 ? words.Of(text) : std::vector<int32_t>();
  for (int n = 1; n <= word_order; ++n) counts.push_back(CountNgrams(numbers, n));
  return counts;
}

ChrfCounts Compare(const std::vector<NgramCounts>& hypothesis, const std::vector<NgramCounts>& reference) {
  ChrfCounts counts;
  for (size_t i = 0; i < reference.size(); ++i) {
    ChrfCounts::Order& order = counts.orders[i];
    for (const auto& [ngram, count] : reference[i]) order.reference += count;
    if (order.reference == 0) continue;
    for (const auto& [ngram, count] : hypothesis[i]) {
      order.hypothesis += count;
      order.matches += std::min(count, CountOf(reference[i], ngram));
    }
  }
  return counts;
}

}  // namespace

ChrfCounts& ChrfCounts::operator+=(const ChrfCounts& other) {
  for (size_t i = 0; i < orders.size(); ++i) {
    orders[i].hypothesis += other.orders[i].hypothesis;
    orders[i].reference += other.orders[i].reference;
    orders[i].matches += other.orders[i].matches;
  }
  return *this;
}

ChrfCounts CountChrfMatches(const std::string& hypothesis, absl::Span<const std::string> references, int word_order) {
  HADAL_CHECK(!references.empty());
  HADAL_CHECK(word_order >= 0 && word_order <= kChrfMostWordOrder);
  WordNumbers words;
  const std::vector<NgramCounts> ngrams = CountAll(hypothesis, word_order, words);
  ChrfCounts best;
  double best_score = -1;
  for (const std::string& reference : references) {
    const ChrfCounts counts = Compare(ngrams, CountAll(reference, word_order, words));
    const double score = ChrfFromCounts(counts);
    if (score <= best_score) continue;
    best_score = score;
    best = counts;
  }
  return best;
}

double ChrfFromCounts(const ChrfCounts& counts) {
  constexpr double kFactor = 4;  // β²
  double precision = 0, recall = 0;
  int effective_orders = 0;
  for (const ChrfCounts::Order& order : counts.orders) {
    if (order.hypothesis == 0 || order.reference == 0) continue;
    const double matches = static_cast<double>(order.matches);
    precision += matches / static_cast<double>(order.hypothesis);
    recall += matches / static_cast<double>(order.reference);
    ++effective_orders;
  }
  if (effective_orders == 0) return 0;
  precision /= effective_orders;
  recall /= effective_orders;
  if (precision + recall == 0) return 0;
  return 100 * ((1 + kFactor) * precision * recall / (kFactor * precision + recall));
}

std::string ChrfName(int word_order) { return absl::StrCat("chrF2", std::string(word_order, '+')); }

std::string ChrfSignature(int references, int word_order) {
  return absl::StrCat("nrefs:", references, "|case:mixed|eff:yes|nc:", kChrfCharacterOrders, "|nw:", word_order,
                      "|space:no|version:", kSacrebleuVersion);
}

}  // namespace hadal
