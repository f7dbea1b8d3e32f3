#include "tools/config/nearest_name.h"

#include <gtest/gtest.h>

namespace hadal {
namespace {

TEST(EditDistance, CountsInsertionsDeletionsSubstitutionsAndSwaps) {
  EXPECT_EQ(EditDistance("", ""), 0);
  EXPECT_EQ(EditDistance("heads", "heads"), 0);
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("head", "heads"), 1);
  EXPECT_EQ(EditDistance("heads", "headz"), 1);
  EXPECT_EQ(EditDistance("haeds", "heads"), 1);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
  EXPECT_EQ(EditDistance("ab", "ba"), 1);
}

TEST(NearestName, FindsTheLikeliestCandidate) {
  EXPECT_EQ(NearestName("encoder_layer", {"decoder_layers", "encoder_layers", "heads"}), "encoder_layers");
  EXPECT_EQ(NearestName("DeepNorm", {"post_ln", "deepnorm"}), "deepnorm");
}

TEST(NearestName, CompletesABeginning) {
  EXPECT_EQ(NearestName("warmup", {"peak", "warmup_updates", "warmup_fraction"}), "warmup_updates");
  EXPECT_EQ(NearestName("wa", {"warmup_updates"}), "") << "two letters are too few";
}

TEST(NearestName, IsEmptyWhenNothingIsNear) {
  EXPECT_EQ(NearestName("banana", {"encoder_layers", "heads"}), "");
  EXPECT_EQ(NearestName("xy", {"ab"}), "") << "replacing every letter is no likeness";
  EXPECT_EQ(NearestName("heads", {}), "");
}

}  // namespace
}  // namespace hadal
