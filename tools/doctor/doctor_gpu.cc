#include "tools/doctor/doctor_gpu.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace hadal {

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

std::string GpuFactsToJson(const GpuFacts& facts) {
  return nlohmann::json{{"asked", facts.asked},
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
                        {"nccl_variables", facts.nccl_variables}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

GpuFacts GpuFactsFromJson(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
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
          .nccl_variables = json.value("nccl_variables", "")};
}

}  // namespace hadal
