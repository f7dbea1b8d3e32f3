#include "tools/translate/leading_tokens.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ForcedTokensTest, TokensOfADictionaryAndItsTags) {
  const Vocabulary vocabulary = *Vocabulary::FromTokens({"__de__", "__x", "Das", "Haus", "deu_Latn"});
  EXPECT_THAT(*ForcedTokens(vocabulary, ""), IsEmpty());
  EXPECT_THAT(*ForcedTokens(vocabulary, "  __de__"), ElementsAre(4));
  EXPECT_THAT(*ForcedTokens(vocabulary, "deu_Latn Das Haus"), ElementsAre(8, 6, 7));
  EXPECT_THAT(*ForcedTokens(vocabulary, "__de__ __de__ __x Das  Haus"), ElementsAre(4, 4, 5, 6, 7));
  for (const char* unknown : {"__fr__", "das", "</s>", "<unk>", "____"}) {
    const absl::Status status = ForcedTokens(vocabulary, std::string("__de__ Das ") + unknown + " Haus").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string("a token of \"") + unknown + "\""));
  }
}

}  // namespace
}  // namespace hadal
