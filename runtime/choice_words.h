// A table of the words for a choice, in a config or a file, and the enumerator that each word stands for; read both
// ways.
// Thread safety: pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>

#include "runtime/check.h"

namespace hadal {

template <typename Enum>
struct Word {
  const char* word;
  Enum value;
};

// The enumerator of `word`; null where the table lacks the word.
template <typename Enum, size_t kSize>
const Enum* FindWord(const Word<Enum> (&words)[kSize], const std::string& word) {
  const auto* found =
      std::find_if(std::begin(words), std::end(words), [&](const auto& entry) { return entry.word == word; });
  return found == std::end(words) ? nullptr : &found->value;
}

// The enumerator of `word`. REQUIRES: the table has the word: the schema's values have been checked.
template <typename Enum, size_t kSize>
Enum FromWord(const Word<Enum> (&words)[kSize], const std::string& word) {
  const Enum* const value = FindWord(words, word);
  HADAL_CHECK(value != nullptr);
  return *value;
}

// The word of `value`.  REQUIRES: the table has it.
template <typename Enum, size_t kSize>
std::string ToWord(const Word<Enum> (&words)[kSize], Enum value) {
  const auto* found =
      std::find_if(std::begin(words), std::end(words), [&](const auto& entry) { return entry.value == value; });
  HADAL_CHECK(found != std::end(words));
  return found->word;
}

}  // namespace hadal
