#include "runtime/rank_facts.h"

#include <stdlib.h>

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace hadal {
namespace {

TEST(RankFacts, SurviveTheTrip) {
  setenv("OMPI_COMM_WORLD_RANK", "3", /*overwrite=*/1);
  RankFacts facts = GatherFacts(3, 2);
  unsetenv("OMPI_COMM_WORLD_RANK");
  EXPECT_EQ(facts.environment_rank, "OMPI_COMM_WORLD_RANK=3");
  EXPECT_FALSE(facts.host.empty());
  EXPECT_FALSE(facts.cpus.empty());
  EXPECT_NE(facts.binary_crc32c, 0u);
  EXPECT_GT(facts.available_bytes, 0);
  facts.local_rank = 1;  // from here on what is not known here, or unlimited
  facts.ranks_on_host = 4;
  facts.instruction_sets = 5;
  facts.open_files_limit = 6;
  facts.memory_limit_bytes = 7;
  facts.shared_memory_bytes = 8;
  const auto back = FactsFromJson(FactsToJson(facts));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(*back == facts) << FactsToJson(*back);
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
