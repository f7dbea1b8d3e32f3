#include "tools/plan/step_costs.h"

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "tools/config/config_loading.h"
#include "tools/output/human_units.h"

namespace hadal {
namespace {

constexpr double kGiga = 1e9, kTera = 1e12, kMicro = 1e-6;

LinkRate MakeLink(const config::Link& link) {
  return {.bytes_per_second = kGiga * link.gb_per_second() * link.efficiency(),
          .latency_seconds = kMicro * link.latency_microseconds()};
}

absl::StatusOr<Machine> MakeMachine(const config::Machine& description) {
  if (!description.has_memory_gib()) {
    return InvalidArgumentError("memory_gib is not set; give the memory of one device");
  }
  if (description.reserved_gib() >= description.memory_gib()) {
    return InvalidArgumentError("reserved_gib = ", description.reserved_gib(),
                                " leaves nothing of memory_gib = ", description.memory_gib());
  }
  const bool bf16 = description.precision() == "bf16";
  const config::MatmulRate& matmul = bf16 ? description.bf16() : description.fp32();
  const double peak = kTera * matmul.peak_tflops();
  return Machine{
      .name = description.name(),
      .nodes = description.nodes(),
      .devices_per_node = description.devices_per_node(),
      .memory_bytes = static_cast<int64_t>(kGib * (description.memory_gib() - description.reserved_gib())),
      .reserved_bytes = static_cast<int64_t>(kGib * description.reserved_gib()),
      .precision = bf16 ? Precision::kBf16 : Precision::kFp32,
      .peak_flops = peak,
      .matmul_flops = peak * matmul.efficiency(),
      .attention_flops = peak * matmul.attention_efficiency(),
      .matmul_units = description.matmul_units(),
      .matmul_tile = description.matmul_tile(),
      .memory_bytes_per_second = kGiga * description.memory_gb_per_second() * description.memory_efficiency(),
      .kernel_seconds = kMicro * description.kernel_microseconds(),
      .gap_seconds = kMicro * description.gap_microseconds(),
      .call_seconds = kMicro * description.call_microseconds(),
      .grouped_call_seconds = kMicro * description.grouped_call_microseconds(),
      .intra_node = MakeLink(description.intra_node()),
      .inter_node = MakeLink(description.inter_node()),
      .overlap = description.overlap()};
}

}  // namespace

absl::StatusOr<Machine> LoadMachine(const std::string& file) {
  config::Machine description;
  HADAL_RETURN_IF_ERROR(LoadMessage(file, description));
  absl::StatusOr<Machine> machine = MakeMachine(description);
  if (machine.ok()) return machine;
  return absl::Status(machine.status().code(), absl::StrCat(file, ": ", machine.status().message()));
}

}  // namespace hadal
