// Tables that map words, the texts by which configs and files name values ("relu", "gelu"), to enumerators, and back.
// Thread safety: pure functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>

#include "runtime/check.h"

namespace hadal {

// One entry of a table.
template <typename Enum>
struct Word {
  const char* word;
  Enum value;
};

// Returns a pointer to the enumerator of `word`, or null if the table does not have the word.
template <typename Enum, size_t kSize>
const Enum* FindWord(const Word<Enum> (&words)[kSize], const std::string& word) {
  const auto* found = std::ranges::find(words, word, &Word<Enum>::word);
  return found == std::end(words) ? nullptr : &found->value;
}

// Returns the enumerator of `word`. REQUIRES: the table has the word, as in a config that has been validated.
template <typename Enum, size_t kSize>
Enum FromWord(const Word<Enum> (&words)[kSize], const std::string& word) {
  const Enum* const value = FindWord(words, word);
  HADAL_CHECK(value != nullptr);
  return *value;
}

// Returns the word for `value`. REQUIRES: the table has it.
template <typename Enum, size_t kSize>
std::string ToWord(const Word<Enum> (&words)[kSize], Enum value) {
  const auto* found = std::ranges::find(words, value, &Word<Enum>::value);
  HADAL_CHECK(found != std::end(words));
  return found->word;
}

}  // namespace hadal
