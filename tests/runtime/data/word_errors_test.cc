// Expected values: jiwer 4.0.0's process_words(reference, hypothesis).
#include "runtime/data/word_errors.h"

#include <string_view>
#include <utility>

#include "gtest/gtest.h"

namespace hadal {
namespace {

void ExpectErrors(std::string_view hypothesis, std::string_view reference, int64_t errors, int64_t words) {
  const WordErrors found = CountWordErrors(hypothesis, reference);
  EXPECT_EQ(found.errors, errors) << hypothesis << " | " << reference;
  EXPECT_EQ(found.reference_words, words) << hypothesis << " | " << reference;
}

TEST(WordErrors, CountsSubstitutionsDeletionsAndInsertions) {
  ExpectErrors("a b c", "a x c d", 2, 4);
  ExpectErrors("b c d e", "a b c d", 2, 4);
  ExpectErrors("a, b", "a b", 1, 2);
}

TEST(WordErrors, EmptySidesCountTheOther) {
  ExpectErrors("", "a b", 2, 2);
  ExpectErrors("a b", "", 2, 0);
  ExpectErrors("", " \t", 0, 0);
}

TEST(WordErrors, ASingleTabOrNoBreakSpaceIsALetter) {
  ExpectErrors("a\tb c", "a b c", 2, 3);
  ExpectErrors("a\t b  c\u00a0d", " a b c d ", 2, 4);
  ExpectErrors("a\u00a0\u00a0b", "a b", 0, 2);
  ExpectErrors("\u3000a", "a", 0, 1);
}

TEST(WordErrors, OfCharactersCountsSpacesBetweenWords) {
  const auto errors = [](std::string_view hypothesis, std::string_view reference) {
    const WordErrors found = CountCharacterErrors(hypothesis, reference);
    return std::pair(found.errors, found.reference_words);
  };
  EXPECT_EQ(errors("a bc", "abcd"), std::pair(int64_t{2}, int64_t{4}));
  EXPECT_EQ(errors(" é\u3000", "\te"), std::pair(int64_t{1}, int64_t{1}));
  EXPECT_EQ(errors("", "中文"), std::pair(int64_t{2}, int64_t{2}));
}

TEST(WordErrors, TheRateIsErrorsPerWord) {
  WordErrors sum = CountWordErrors("a b c", "a x c d");
  sum += CountWordErrors("a", "a");
  EXPECT_EQ(sum.Rate(), 0.4);
  EXPECT_EQ(CountWordErrors("a b", "").Rate(), 2);
}

}  // namespace
}  // namespace hadal
