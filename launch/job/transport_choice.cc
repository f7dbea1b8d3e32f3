#include "launch/job/transport_choice.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

std::string Pack(const TransportFacts& facts) { return absl::StrCat(facts.device, "\n", facts.nccl, "\n", facts.why); }

TransportFacts Unpack(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits('\n', 2));
  TransportFacts facts;
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[1], &facts.nccl)) return facts;
  facts.device = parts[0];
  facts.why = parts[2];
  return facts;
}

}  // namespace

std::string WhyNoNccl(std::span<const TransportFacts> ranks) {
  std::map<std::string, size_t> rank_of_device;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const TransportFacts& facts = ranks[rank];
    if (facts.nccl == 0) return absl::StrCat("rank ", rank, " has no NCCL: ", facts.why);
    if (facts.nccl != ranks[0].nccl) {
      return absl::StrCat("rank 0 has NCCL ", NcclVersionText(ranks[0].nccl), ", rank ", rank, " has ",
                          NcclVersionText(facts.nccl));
    }
    const auto [other, is_new] = rank_of_device.emplace(facts.device, rank);
    if (!is_new) return absl::StrCat("ranks ", other->second, " and ", rank, " share ", facts.device);
  }
  return "";
}

std::string NcclVariables(const char* const* environment) {
  std::vector<std::string> set;
  for (; *environment != nullptr; ++environment) {
    if (std::string_view(*environment).starts_with("NCCL_")) set.emplace_back(*environment);
  }
  std::sort(set.begin(), set.end());
  return absl::StrJoin(set, " ");
}

absl::StatusOr<ChosenTransport> ChooseTransport(Transport asked, const std::string& device, Communicator& world,
                                                Collectives& collectives) {
  ChosenTransport chosen;
  if (device.empty() && asked == Transport::kNccl) {
    return AsCommonError(absl::InvalidArgumentError(
        "pipeline.transport = \"nccl\" needs GPUs, and this run computes on the CPU; leave it at \"auto\""));
  }
  if (device.empty() || world.size() == 1) return chosen;
  const bool speaks = world.rank() == 0;
  constexpr const char* kByHost = "ranks exchange data through pinned host memory and MPI";
  if (asked == Transport::kHost) {
    if (speaks) chosen.notice = absl::StrCat(kByHost, ", as pipeline.transport says");
    return chosen;
  }
  TransportFacts mine{.device = device};
  absl::StatusOr<std::unique_ptr<NcclLibrary>> library = OpenNccl();
  if (library.ok()) {
    mine.nccl = (*library)->Version();
  } else {
    mine.why = std::string(library.status().message());
  }
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> gathered, collectives.AllGather(Pack(mine), "GPUs and NCCL"));
  std::vector<TransportFacts> ranks;
  ranks.reserve(gathered.size());
  for (const std::string& text : gathered) ranks.push_back(Unpack(text));
  const std::string why = WhyNoNccl(ranks);
  if (!why.empty() && asked == Transport::kNccl) {
    return AsCommonError(absl::InvalidArgumentError(
        absl::StrCat("pipeline.transport = \"nccl\": ", why, ". Use \"auto\" or \"host\".")));
  }
  if (!why.empty()) {
    if (speaks) chosen.notice = absl::StrCat(kByHost, ", because ", why);
    return chosen;
  }
  chosen.nccl = *std::move(library);
  if (speaks) {
    const std::string variables = NcclVariables(environ);
    chosen.notice = absl::StrCat("ranks exchange data from GPU to GPU by NCCL ", NcclVersionText(mine.nccl),
                                 variables.empty() ? "" : "; set for it: ", variables);
  }
  return chosen;
}

}  // namespace hadal
