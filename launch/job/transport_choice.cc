#include "launch/job/transport_choice.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/comm/nccl_link.h"
#include "runtime/logged_environment.h"

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
    const auto [other, is_new] = rank_of_device.emplace(facts.gpu, rank);
    if (!is_new) return absl::StrCat("ranks ", other->second, " and ", rank, " share ", facts.gpu);
  }
  return "";
}

}  // namespace

std::string NcclRefusal(const char* const* environment) {
  const std::string kConnections = "CUDA_DEVICE_MAX_CONNECTIONS=";
  const std::pair<std::string, int> kMost[] = {{"NCCL_MAX_CTAS=", NcclLink::kMostBlocks},
                                               {"NCCL_MIN_CTAS=", NcclLink::kMostBlocks},
                                               {"NCCL_MIN_NCHANNELS=", NcclLink::kMostBlocks},
                                               {"NCCL_MIN_P2P_NCHANNELS=", NcclLink::kMostBlocks},
                                               {"NCCL_LAUNCH_ORDER_IMPLICIT=", 0}};
  std::string connections = "not set";
  for (; *environment != nullptr; ++environment) {
    const std::string variable = *environment;
    if (variable.starts_with(kConnections)) connections = variable.substr(kConnections.size());
    for (const auto& [name, most] : kMost) {
      int value = 0;
      if (!variable.starts_with(name) || (absl::SimpleAtoi(variable.substr(name.size()), &value) && value <= most)) {
        continue;
      }
      return absl::StrCat(variable, " is refused, because ranks could wait for each other for ever: at most ", most,
                          "; unset it");
    }
  }
  if (connections == "32") return "";
  return absl::StrCat("CUDA_DEVICE_MAX_CONNECTIONS is ", connections,
                      ", and NCCL needs 32: with fewer hardware queues ranks could wait for each other for ever. Unset "
                      "it (scripts for Megatron-LM export 1)");
}

std::string NcclVariables(const char* const* environment) {
  std::vector<std::string> set = LoggedEnvironment(environment);
  std::erase_if(set, [](const std::string& variable) { return !variable.starts_with("NCCL_"); });
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
  facts.nccl_refusal = NcclRefusal(environ);
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
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].nccl_refusal.empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank, ": ", ranks[rank].nccl_refusal, ", or set pipeline.transport = \"host\"."));
  }
  const std::string& variables = ranks[0].nccl_variables;
  return TransportDecision{
      .nccl = true,
      .notice = absl::StrCat("ranks exchange data from GPU to GPU by NCCL ", NcclVersionText(ranks[0].nccl),
                             variables.empty() ? "" : "; set for it: ", variables)};
}

}  // namespace hadal
