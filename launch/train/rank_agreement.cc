#include "launch/train/rank_agreement.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/check.h"
#include "runtime/status_macros.h"
#include "tools/config/config_difference.h"
#include "tools/config/config_loading.h"
#include "tools/doctor/doctor_findings.h"

namespace hadal {
namespace {

// The ranks of whom `differs` is true.
template <typename Differs>
std::vector<int> RanksThat(std::span<const RankFacts> ranks, const Differs& differs) {
  std::vector<int> found;
  for (const RankFacts& facts : ranks) {
    if (differs(facts)) found.push_back(facts.rank);
  }
  return found;
}

}  // namespace

absl::StatusOr<RankAgreement> Agree(std::span<const RankFacts> ranks) {
  HADAL_CHECK(!ranks.empty());
  const std::vector<RankFacts> all(ranks.begin(), ranks.end());
  const auto others = RanksThat(ranks, [&](const RankFacts& f) { return f.binary_crc32c != all[0].binary_crc32c; });
  if (!others.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(DescribeRanks(others, all), ": another hadal than rank 0's on ",
                                                   all[0].host, "; start every rank with the same file"));
  }
  RankAgreement agreement{.instruction_sets = all[0].instruction_sets};
  for (const RankFacts& facts : ranks) agreement.instruction_sets &= facts.instruction_sets;
  const std::string common = InstructionSetName(agreement.instruction_sets);
  if (agreement.instruction_sets == 0) {
    return absl::FailedPreconditionError("the ranks' CPUs have no instruction set in common");
  }
  const auto has_no_more = [&](const RankFacts& f) { return f.instruction_sets == agreement.instruction_sets; };
  const auto narrow = RanksThat(ranks, has_no_more);
  if (narrow.size() == ranks.size()) return agreement;
  agreement.notice =
      absl::StrCat("all ranks compute with ", common, ", the widest instruction set that each of them has",
                   narrow.empty() ? "" : absl::StrCat(" (", DescribeRanks({narrow[0]}, all), " has none wider)"),
                   ": so every layout gives the same bits; nodes of one kind would be faster");
  return agreement;
}

absl::StatusOr<std::string> AgreeWithRanks(const World& world, Collectives& collectives) {
  if (world.size() == 1) {
    HADAL_RETURN_IF_ERROR(UseInstructionSets(AvailableInstructionSets()));
    return std::string();
  }
  const std::string mine = FactsToJson(GatherFacts(world.rank(), world.stream().threads()));
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> all, collectives.AllGather(mine, "what ranks run on"));
  std::vector<RankFacts> ranks;
  for (const std::string& text : all) {
    HADAL_ASSIGN_OR_RETURN(ranks.emplace_back(), FactsFromJson(text));
  }
  HADAL_ASSIGN_OR_RETURN(const RankAgreement agreement, Agree(ranks));
  HADAL_RETURN_IF_ERROR(
      collectives.AllOk(UseInstructionSets(agreement.instruction_sets), "choosing an instruction set"));
  return world.rank() == 0 ? agreement.notice : std::string();
}

absl::Status AgreeOnSettings(const std::string& start, const std::string& config_text, Collectives& collectives) {
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> starts, collectives.AllGather(start, "how ranks were started"));
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                         collectives.AllGather(config_text, "the ranks' settings"));
  for (size_t rank = 1; rank < starts.size(); ++rank) {
    if (starts[rank] != starts[0]) {
      return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " was started with ", starts[rank],
                                                     ", rank 0 with ", starts[0],
                                                     "; start every rank with the same command"));
    }
    if (texts[rank] == texts[0]) continue;
    config::RunConfig first, other;
    HADAL_RETURN_IF_ERROR(MergeConfigText(texts[0], "rank 0's settings", first));
    HADAL_RETURN_IF_ERROR(MergeConfigText(texts[rank], "a rank's settings", other));
    HADAL_ASSIGN_OR_RETURN(const std::vector<ConfigDifference> differences, CompareConfigs(first, other));
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " has other settings than rank 0 (rank 0's -> rank ",
                                                   rank, "'s):\n", DifferencesText(differences),
                                                   "Start every rank with the same files and the same --set"));
  }
  return absl::OkStatus();
}

}  // namespace hadal
