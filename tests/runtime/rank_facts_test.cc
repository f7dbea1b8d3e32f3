#include "runtime/rank_facts.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace hadal {
namespace {

TEST(RankFacts, SurviveTheTrip) {
  RankFacts facts = GatherFacts(3, 2);
  EXPECT_FALSE(facts.host.empty());
  EXPECT_FALSE(facts.cpus.empty());
  EXPECT_NE(facts.binary_crc32c, 0u);
  EXPECT_GT(facts.available_bytes, 0);
  facts.ranks_on_host = 4;
  const auto back = FactsFromJson(FactsToJson(facts));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(FactsToJson(*back), FactsToJson(facts));
  EXPECT_EQ(back->ranks_on_host, 4);
  EXPECT_FALSE(FactsFromJson("{").ok());
}

TEST(RankFacts, CpuListsAsTheKernelWritesThem) {
  EXPECT_EQ(CpuList({0, 1, 2, 3, 8}), "0-3,8");
  EXPECT_EQ(CpuList({5}), "5");
  EXPECT_EQ(CpuList({}), "");
}

TEST(DescribeRanks, NamesTheHostsAndSaysAllOfThree) {
  const std::vector<std::string> three = {"n1", "n1", "n2"}, two = {"n1", "n1"};
  EXPECT_EQ(DescribeRanks({0, 1, 2}, three), "all 3 ranks");
  EXPECT_EQ(DescribeRanks({0, 1}, three), "ranks 0, 1 (host n1)");
  EXPECT_EQ(DescribeRanks({1, 2}, three), "ranks 1, 2 (hosts n1, n2)");
  EXPECT_EQ(DescribeRanks({2}, three), "rank 2 (host n2)");
  EXPECT_EQ(DescribeRanks({0, 1}, two), "ranks 0, 1 (host n1)");
}

}  // namespace
}  // namespace hadal
