#include "tools/doctor/doctor_gpu.h"

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

using Json = nlohmann::json;

Json ToJson(const GpuFacts& facts) {
  return {{"asked", facts.asked},
          {"required", facts.required},
          {"why_none", facts.why_none},
          {"absent", facts.absent},
          {"identity", facts.device.identity},
          {"model", facts.device.model},
          {"architecture", facts.device.architecture},
          {"bus", facts.device.bus},
          {"memory_bytes", facts.device.memory_bytes},
          {"free_bytes", facts.device.free_bytes},
          {"driver", facts.device.driver},
          {"runtime", facts.device.runtime},
          {"cublas", facts.device.cublas},
          {"nccl", facts.nccl},
          {"why_no_nccl", facts.why_no_nccl},
          {"nccl_variables", facts.nccl_variables},
          {"nccl_refusal", facts.nccl_refusal}};
}

GpuFacts FromJson(const Json& json) {
  if (!json.is_object()) return {};
  return {.asked = json.value("asked", false),
          .required = json.value("required", false),
          .why_none = json.value("why_none", ""),
          .absent = json.value("absent", false),
          .device = {.model = json.value("model", ""),
                     .architecture = json.value("architecture", ""),
                     .bus = json.value("bus", ""),
                     .identity = json.value("identity", ""),
                     .memory_bytes = json.value("memory_bytes", int64_t{0}),
                     .free_bytes = json.value("free_bytes", int64_t{0}),
                     .driver = json.value("driver", 0),
                     .runtime = json.value("runtime", 0),
                     .cublas = json.value("cublas", 0)},
          .nccl = json.value("nccl", 0),
          .why_no_nccl = json.value("why_no_nccl", ""),
          .nccl_variables = json.value("nccl_variables", ""),
          .nccl_refusal = json.value("nccl_refusal", "")};
}

}  // namespace

GpuFacts GatherGpuFacts(const absl::StatusOr<cuda::CudaFacts>& seen, const absl::Status& usable, bool required) {
  GpuFacts facts{.asked = true, .required = required, .absent = absl::IsNotFound(usable)};
  if (seen.ok()) facts.device = *seen;
  if (!usable.ok()) facts.why_none = usable.message().empty() ? "no reason is known" : std::string(usable.message());
  return facts;
}

std::string CudaVersionText(int version) {
  return version == 0 ? "-" : absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

std::string LibraryVersionText(int version) {
  return version == 0 ? "-" : absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

std::string PlaceOfGpu(const DoctorFacts& facts) {
  const cuda::CudaFacts& device = facts.gpu.device;
  return device.bus.empty() ? device.identity : absl::StrCat(facts.host, " ", device.bus);
}

void PlaceOnHosts(std::vector<DoctorFacts>& ranks) {
  std::map<std::string, int> seen;
  for (DoctorFacts& facts : ranks) facts.local_rank = seen[facts.host]++;
  for (DoctorFacts& facts : ranks) facts.ranks_on_host = seen[facts.host];
}

std::string DoctorFactsToJson(const DoctorFacts& facts) {
  Json json = Json::parse(FactsToJson(facts));
  json["gpu"] = ToJson(facts.gpu);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<DoctorFacts> DoctorFactsFromJson(const std::string& text) {
  HADAL_ASSIGN_OR_RETURN(RankFacts facts, FactsFromJson(text));
  return DoctorFacts{std::move(facts), FromJson(Json::parse(text).value("gpu", Json()))};
}

}  // namespace hadal
