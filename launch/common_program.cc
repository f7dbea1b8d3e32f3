#include "launch/common_program.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/check.h"
#include "runtime/status_macros.h"

namespace hadal {

RankFacts FactsOf(const World& world) {
  RankFacts facts = GatherFacts(world.rank(), world.stream().threads());
  facts.local_rank = world.local_rank();
  facts.ranks_on_host = world.ranks_on_host();
  facts.instruction_sets = AvailableInstructionSets();
  return facts;
}

absl::StatusOr<CommonProgram> CompareRanks(std::span<const RankFacts> ranks) {
  HADAL_CHECK(!ranks.empty());
  const RankFacts& first = ranks[0];
  CommonProgram common{.instruction_sets = first.instruction_sets};
  std::vector<std::string> hosts;
  std::vector<int> others, narrow;
  for (const RankFacts& facts : ranks) {
    hosts.push_back(facts.host);
    if (facts.binary_crc32c != first.binary_crc32c) others.push_back(facts.rank);
    common.instruction_sets &= facts.instruction_sets;
  }
  if (!others.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(DescribeRanks(others, hosts), ": another hadal than rank 0's on ",
                                                   first.host, "; start every rank with the same file"));
  }
  if (common.instruction_sets == 0) {
    return absl::InternalError(
        "the ranks' CPUs have none of the kernels' instruction sets in common (x86-64: SSE4, of 2010, and later ones)");
  }
  if (HasFusedMultiplyAdd(common.instruction_sets)) {
    common.instruction_sets = ~InstructionSets{0};
    return common;
  }
  for (const RankFacts& facts : ranks) {
    if (facts.instruction_sets == common.instruction_sets) narrow.push_back(facts.rank);
  }
  if (narrow.size() == ranks.size()) return common;
  common.notice =
      absl::StrCat("all ranks compute with ", InstructionSetName(common.instruction_sets),
                   ", the widest instruction set that each of them has",
                   narrow.empty() ? "" : absl::StrCat(" (", DescribeRanks({narrow[0]}, hosts), " has none wider)"),
                   ": so every layout gives the same bits; nodes of one kind would be faster");
  return common;
}

absl::StatusOr<std::string> UseCommonProgram(const World& world, Collectives& collectives) {
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> gathered,
                         collectives.AllGather(FactsToJson(FactsOf(world)), "what ranks run on"));
  std::vector<RankFacts> ranks;
  for (const std::string& text : gathered) {
    HADAL_ASSIGN_OR_RETURN(ranks.emplace_back(), FactsFromJson(text));
  }
  HADAL_ASSIGN_OR_RETURN(const CommonProgram common, AsCommonError(CompareRanks(ranks)));
  UseInstructionSets(common.instruction_sets);
  return world.rank() == 0 ? common.notice : "";
}

}  // namespace hadal
