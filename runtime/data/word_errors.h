// Word and character error rates (WER, CER), equal to jiwer's defaults.
//
//   WER = Σ (substitutions + deletions + insertions) / Σ words of the references
//   CER = the same for characters, spaces between words included
// The errors of a segment are the least number of edits that make the hypothesis the reference (Levenshtein distance).
// Words are split at a space, and at two or more characters of white space; one other white-space character between two
// letters (a tab, a no-break space) is a part of the word. Case and punctuation count.
// Sources: Levenshtein 1966; jiwer 4.0.0, which returns the same double.
#pragma once

#include <cstdint>
#include <string_view>

namespace hadal {

// Counts of one or more segments; the order of adding segments does not matter.
struct WordErrors {
  int64_t errors = 0;
  int64_t reference_words = 0;  // CER: characters

  WordErrors& operator+=(const WordErrors& other) {
    errors += other.errors;
    reference_words += other.reference_words;
    return *this;
  }
  // Without a word in the references: the number of errors, as in jiwer.
  double Rate() const {
    return static_cast<double>(errors) / static_cast<double>(reference_words == 0 ? 1 : reference_words);
  }
};

// Arguments are UTF-8. Takes O(words of the hypothesis · words of the reference) time. Thread safety: any thread.
WordErrors CountWordErrors(std::string_view hypothesis, std::string_view reference);
// As CountWordErrors, for characters. White space at the beginning and end of either text does not count.
WordErrors CountCharacterErrors(std::string_view hypothesis, std::string_view reference);

}  // namespace hadal
