#include "launch/transport_choice.h"

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "kernels/cuda_host/held_streams.h"
#include "runtime/comm/nccl_link.h"
#include "runtime/files.h"
#include "runtime/logged_environment.h"
#include "runtime/status_macros.h"

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

// More than a rank has (runtime/comm/nccl_communicator.md).
constexpr int kStreams = 24;

std::string HeldStreamsRefusal() {
  const absl::StatusOr<cuda::HeldStreams> held = cuda::CountHeldStreams(kStreams);
  if (!held.ok()) return absl::StrCat("this rank's GPU does not answer: ", held.status().message());
  if (held->most == 0) return "";
  return absl::StrCat("behind one of ", kStreams, " streams up to ", held->most,
                      " others wait that do not depend on it, although CUDA_DEVICE_MAX_CONNECTIONS is 32: the driver "
                      "gives fewer hardware queues, and ranks could wait for each other for ever. Run without MPS, "
                      "with the variable set before the program starts");
}

}  // namespace

std::vector<std::string> NcclFiles() {
  std::vector<std::string> files;
  const char* const chosen = std::getenv("NCCL_CONF_FILE");
  if (chosen != nullptr && *chosen != '\0') {
    files.emplace_back(chosen);
  } else if (const passwd* const user = getpwuid(getuid()); user != nullptr) {
    files.push_back(absl::StrCat(user->pw_dir, "/.nccl.conf"));
  }
  files.emplace_back("/etc/nccl.conf");
  return files;
}

std::vector<NcclSetting> NcclSettings(const char* const* environment, std::span<const std::string> files) {
  constexpr int64_t kMostBytes = 1 << 20;
  std::vector<NcclSetting> settings;
  std::set<std::string> names;
  const auto add = [&](const std::string& variable, const std::string& file) {
    const size_t end = variable.find('=');
    if (end == std::string::npos || !names.insert(variable.substr(0, end)).second) return;
    settings.push_back({.variable = variable, .file = file});
  };
  for (; *environment != nullptr; ++environment) add(*environment, "");
  for (const std::string& file : files) {
    const absl::StatusOr<std::string> text = ReadFile(file, kMostBytes);
    if (!text.ok()) continue;
    for (const absl::string_view line : absl::StrSplit(*text, '\n')) add(std::string(line), file);
  }
  return settings;
}

std::string NcclRefusal(std::span<const NcclSetting> settings) {
  const std::string kConnections = "CUDA_DEVICE_MAX_CONNECTIONS=";
  const std::pair<std::string, int> kMost[] = {{"NCCL_MAX_CTAS=", NcclLink::kMostBlocks},
                                               {"NCCL_MIN_CTAS=", NcclLink::kMostBlocks},
                                               {"NCCL_MIN_NCHANNELS=", NcclLink::kMostBlocks},
                                               {"NCCL_MIN_P2P_NCHANNELS=", NcclLink::kMostBlocks},
                                               {"NCCL_LAUNCH_ORDER_IMPLICIT=", 0},
                                               {"NCCL_COMM_BLOCKING=", 0}};
  std::string connections = "not set";
  for (const auto& [variable, file] : settings) {
    if (variable.starts_with(kConnections) && file.empty()) connections = variable.substr(kConnections.size());
    for (const auto& [name, most] : kMost) {
      int value = 0;
      if (!variable.starts_with(name) || (absl::SimpleAtoi(variable.substr(name.size()), &value) && value <= most)) {
        continue;
      }
      const std::string place = file.empty() ? "" : absl::StrCat(" in ", file);
      return absl::StrCat(variable, place, " is refused, because ranks could wait for each other for ever: at most ",
                          most, "; unset it",
                          file.empty() ? "" : absl::StrCat(", or set ", name, most, " for the run"));
    }
  }
  if (connections == "32") return "";
  return absl::StrCat("CUDA_DEVICE_MAX_CONNECTIONS is ", connections,
                      ", and NCCL needs 32: with fewer hardware queues ranks could wait for each other for ever. Unset "
                      "it (scripts for Megatron-LM export 1)");
}

std::string NcclVariables(std::span<const NcclSetting> settings) {
  std::vector<const char*> variables;
  for (const NcclSetting& setting : settings) {
    if (setting.variable.starts_with("NCCL_")) variables.push_back(setting.variable.c_str());
  }
  variables.push_back(nullptr);
  return absl::StrJoin(LoggedEnvironment(variables.data()), " ");
}

NcclConditions ExamineNcclConditions() {
  const std::vector<NcclSetting> settings = NcclSettings(environ, NcclFiles());
  NcclConditions conditions{.variables = NcclVariables(settings), .refusal = NcclRefusal(settings)};
  if (conditions.refusal.empty()) conditions.refusal = HeldStreamsRefusal();
  return conditions;
}

std::unique_ptr<NcclLibrary> FindNccl(Transport asked, int ranks, DeviceFacts& facts) {
  if (!facts.why_none.empty() || ranks == 1 || asked == Transport::kHost) return nullptr;
  absl::StatusOr<std::unique_ptr<NcclLibrary>> library = OpenNccl();
  if (!library.ok()) {
    facts.why_no_nccl = std::string(library.status().message());
    return nullptr;
  }
  facts.nccl = (*library)->Version();
  NcclConditions conditions = ExamineNcclConditions();
  facts.nccl_variables = std::move(conditions.variables);
  facts.nccl_refusal = std::move(conditions.refusal);
  return *std::move(library);
}

absl::StatusOr<TransportDecision> DecideTransport(Transport asked, bool gpu, std::span<const DeviceFacts> ranks) {
  if (!gpu && asked == Transport::kNccl) {
    return InvalidArgumentError(
        "pipeline.transport = \"nccl\" needs GPUs, and this run computes on the CPU; leave it at \"auto\"");
  }
  if (!gpu || ranks.size() == 1) return TransportDecision();
  constexpr const char* kByHost = "ranks exchange data through pinned host memory and MPI";
  if (asked == Transport::kHost) {
    return TransportDecision{.notice = absl::StrCat(kByHost, ", as pipeline.transport says")};
  }
  const std::string why = WhyNoNccl(ranks);
  if (!why.empty() && asked == Transport::kNccl) {
    return InvalidArgumentError("pipeline.transport = \"nccl\": ", why, ". Use \"auto\" or \"host\".");
  }
  if (!why.empty()) return TransportDecision{.notice = absl::StrCat(kByHost, ", because ", why)};
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].nccl_refusal.empty()) continue;
    return InvalidArgumentError("rank ", rank, ": ", ranks[rank].nccl_refusal,
                                ", or set pipeline.transport = \"host\".");
  }
  const std::string& variables = ranks[0].nccl_variables;
  return TransportDecision{
      .nccl = true,
      .notice = absl::StrCat("ranks exchange data from GPU to GPU by NCCL ", NcclVersionText(ranks[0].nccl),
                             variables.empty() ? "" : "; set for it: ", variables)};
}

}  // namespace hadal
