#include "pipeline/decode/translation_bytes.h"

#include <cstring>
#include <limits>

#include "gtest/gtest.h"

namespace hadal {
namespace {

std::vector<std::vector<Hypothesis>> Translations() {
  return {{{.tokens = {7, 2147483647, 4},
            .token_log_probabilities = {-0.5f, -1e-30f, -3, -0.25f},
            .log_probability = -3.75,
            .score = -1.1},
           {.tokens = {}, .token_log_probabilities = {-2}, .log_probability = -2, .score = -2}},
          {},  // a sentence without a translation
          {{.tokens = {5},
            .token_log_probabilities = {-std::numeric_limits<float>::infinity(), 0},
            .log_probability = -std::numeric_limits<double>::infinity(),
            .score = 1e300}}};
}

TEST(TranslationBytes, ComeBackAsTheyWere) {
  const auto translations = Translations();
  const auto back = TranslationsFromBytes(TranslationsToBytes(translations));
  ASSERT_TRUE(back.ok()) << back.status();
  ASSERT_EQ(back->size(), translations.size());
  for (size_t s = 0; s < translations.size(); ++s) {
    ASSERT_EQ((*back)[s].size(), translations[s].size()) << s;
    for (size_t h = 0; h < translations[s].size(); ++h) {
      const Hypothesis &was = translations[s][h], &is = (*back)[s][h];
      EXPECT_EQ(is.tokens, was.tokens);
      EXPECT_EQ(is.token_log_probabilities, was.token_log_probabilities);
      EXPECT_EQ(is.log_probability, was.log_probability);
      EXPECT_EQ(is.score, was.score);
    }
  }
  EXPECT_TRUE(TranslationsFromBytes(TranslationsToBytes({}))->empty());
}

TEST(TranslationBytes, CutShortAnywhereOrTooLongTheyAreRefused) {
  const std::string bytes = TranslationsToBytes(Translations());
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_EQ(TranslationsFromBytes(std::string_view(bytes).substr(0, length)).status().code(),
              absl::StatusCode::kInternal)
        << length;
  }
  EXPECT_EQ(TranslationsFromBytes(bytes + '\0').status().code(), absl::StatusCode::kInternal);
}

// A count that the bytes behind it cannot hold must not be believed: it would be allocated.
TEST(TranslationBytes, ACountBeyondTheBytesIsRefused) {
  const std::string bytes = TranslationsToBytes(Translations());
  for (size_t at = 0; at < 3; ++at) {  // of sentences, of hypotheses, of tokens
    for (const uint64_t count : {uint64_t{1} << 40, std::numeric_limits<uint64_t>::max()}) {
      std::string damaged = bytes;
      std::memcpy(damaged.data() + at * sizeof(count), &count, sizeof(count));
      EXPECT_EQ(TranslationsFromBytes(damaged).status().code(), absl::StatusCode::kInternal) << at;
    }
  }
}

}  // namespace
}  // namespace hadal
