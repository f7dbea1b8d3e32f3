#include "launch/job/transport_choice.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace hadal {
namespace {

// Why these ranks cannot exchange by NCCL, or "".
std::string WhyNoNccl(std::span<const DeviceFacts> ranks) {
  std::map<std::string, size_t> rank_of_device;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const DeviceFacts& facts = ranks[rank];
    if (facts.nccl == 0) return absl::StrCat("rank ", rank, " has no NCCL: ", facts.why_no_nccl);
    if (facts.nccl != ranks[0].nccl) {
      return absl::StrCat("rank 0 has NCCL ", NcclVersionText(ranks[0].nccl), ", rank ", rank, " has ",
                          NcclVersionText(facts.nccl));
    }
    const auto [other, is_new] = rank_of_device.emplace(facts.identity, rank);
    if (!is_new) return absl::StrCat("ranks ", other->second, " and ", rank, " share ", facts.identity);
  }
  return "";
}

}  // namespace

std::string NcclVariables(const char* const* environment) {
  std::vector<std::string> set;
  for (; *environment != nullptr; ++environment) {
    if (std::string_view(*environment).starts_with("NCCL_")) set.emplace_back(*environment);
  }
  std::sort(set.begin(), set.end());
  return absl::StrJoin(set, " ");
}

std::unique_ptr<NcclLibrary> FindNccl(Transport asked, int ranks, DeviceFacts& facts) {
  if (!facts.why_none.empty() || ranks == 1 || asked == Transport::kHost) return nullptr;
  absl::StatusOr<std::unique_ptr<NcclLibrary>> library = OpenNccl();
  if (!library.ok()) {
    facts.why_no_nccl = std::string(library.status().message());
    return nullptr;
  }
  facts.nccl = (*library)->Version();
  facts.nccl_variables = NcclVariables(environ);
  return *std::move(library);
}

absl::StatusOr<TransportDecision> DecideTransport(Transport asked, bool gpu, std::span<const DeviceFacts> ranks) {
  if (!gpu && asked == Transport::kNccl) {
    return absl::InvalidArgumentError(
        "pipeline.transport = \"nccl\" needs GPUs, and this run computes on the CPU; leave it at \"auto\"");
  }
  if (!gpu || ranks.size() == 1) return TransportDecision();
  constexpr const char* kByHost = "ranks exchange data through pinned host memory and MPI";
  if (asked == Transport::kHost) {
    return TransportDecision{.notice = absl::StrCat(kByHost, ", as pipeline.transport says")};
  }
  const std::string why = WhyNoNccl(ranks);
  if (!why.empty() && asked == Transport::kNccl) {
    return absl::InvalidArgumentError(
        absl::StrCat("pipeline.transport = \"nccl\": ", why, ". Use \"auto\" or \"host\"."));
  }
  if (!why.empty()) return TransportDecision{.notice = absl::StrCat(kByHost, ", because ", why)};
  const std::string& variables = ranks[0].nccl_variables;
  return TransportDecision{
      .nccl = true,
      .notice = absl::StrCat("ranks exchange data from GPU to GPU by NCCL ", NcclVersionText(ranks[0].nccl),
                             variables.empty() ? "" : "; set for it: ", variables)};
}

}  // namespace hadal
