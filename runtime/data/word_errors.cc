#include "runtime/data/word_errors.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <unordered_map>
#include <vector>

#include "runtime/data/unicode_text.h"

namespace hadal {
namespace {

std::vector<std::string_view> Words(std::string_view text) {
  text = StripTrailingSpace(text);
  std::vector<std::string_view> words;
  size_t start = 0, i = 0;
  while (i < text.size()) {
    size_t end = i, spaces = 0;  // of a run of white space from i on
    while (const size_t bytes = LeadingSpaceBytes(text.substr(end))) {
      end += bytes;
      ++spaces;
    }
    const bool splits = spaces > 1 || (spaces == 1 && (i == 0 || text[i] == ' '));
    if (splits && i > start) words.push_back(text.substr(start, i - start));
    if (splits) start = end;
    i = std::max(end, i + 1);
  }
  if (text.size() > start) words.push_back(text.substr(start));
  return words;
}

// Numbers the words of both, so that comparing two is cheap.
void Number(const std::vector<std::string_view>& words, std::unordered_map<std::string_view, int32_t>& numbers,
            std::vector<int32_t>& numbered) {
  for (const std::string_view word : words) {
    numbered.push_back(numbers.try_emplace(word, static_cast<int32_t>(numbers.size())).first->second);
  }
}

// The code points of `text` without white space around it.
std::vector<uint32_t> Characters(std::string_view text) {
  text = StripTrailingSpace(text);
  while (const size_t bytes = LeadingSpaceBytes(text)) text.remove_prefix(bytes);
  std::vector<uint32_t> characters;
  while (!text.empty()) characters.push_back(TakeCharacter(text));
  return characters;
}

template <typename Token>
WordErrors CountEdits(const std::vector<Token>& found, const std::vector<Token>& wanted) {
  std::vector<int64_t> edits(wanted.size() + 1);  // from the hypothesis so far to each beginning of the reference
  std::iota(edits.begin(), edits.end(), 0);
  for (const Token token : found) {
    int64_t diagonal = edits[0]++;
    for (size_t j = 0; j < wanted.size(); ++j) {
      const int64_t substituted = diagonal + (token == wanted[j] ? 0 : 1);
      diagonal = edits[j + 1];
      edits[j + 1] = std::min(substituted, 1 + std::min(edits[j], edits[j + 1]));
    }
  }
  return {.errors = edits.back(), .reference_words = static_cast<int64_t>(wanted.size())};
}

}  // namespace

WordErrors CountWordErrors(std::string_view hypothesis, std::string_view reference) {
  std::unordered_map<std::string_view, int32_t> numbers;
  std::vector<int32_t> found, wanted;
  Number(Words(hypothesis), numbers, found);
  Number(Words(reference), numbers, wanted);
  return CountEdits(found, wanted);
}

WordErrors CountCharacterErrors(std::string_view hypothesis, std::string_view reference) {
  return CountEdits(Characters(hypothesis), Characters(reference));
}

}  // namespace hadal
