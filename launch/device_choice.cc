#include "launch/device_choice.h"

#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "kernels/device/cuda_device.h"
#include "layers/device_support.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

absl::Status CheckRun(const ModelPlan& plan, const TrainOptions& options, const Device& device) {
  HADAL_RETURN_IF_ERROR(CheckDeviceSupport(plan, device.kernels()));
  if (options.validation.every_steps > 0 && options.validation.bleu_sentences > 0) {
    return absl::UnimplementedError(
        "validation.bleu_sentences needs beam search, which has no GPU version yet; set it to 0, or train with "
        "--device "
        "cpu");
  }
  return absl::OkStatus();
}

}  // namespace

void AddDeviceFlags(CLI::App& command, DeviceRequest& request) {
  command.add_option("--device", request.kind, "auto (a GPU where there is one and the model trains on it), cpu, cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  command.add_flag("--tf32", request.tf32, "On a GPU: products in tf32 instead of fp32");
}

absl::StatusOr<ChosenDevice> ChooseDevice(const DeviceRequest& request, const ModelPlan& plan,
                                          const TrainOptions& options, World& world, Collectives& collectives) {
  if (request.kind == "cpu") return ChosenDevice();
  absl::StatusOr<std::unique_ptr<Device>> device =
      cuda::OpenCudaDevice({.local_rank = world.local_rank(), .tf32 = request.tf32});
  const bool found = device.ok();
  const absl::Status status = found ? CheckRun(plan, options, **device) : device.status();
  ChosenDevice chosen;
  if (request.kind == "cuda") {
    const absl::Status usage =
        status.ok() ? status : absl::InvalidArgumentError(absl::StrCat("--device cuda: ", status.message()));
    HADAL_RETURN_IF_ERROR(collectives.AllOk(usage, "choosing a GPU"));
  } else {
    HADAL_ASSIGN_OR_RETURN(const bool cpu, collectives.AnyRank(!status.ok(), "choosing a device"));
    if (cpu) {
      if (found && world.rank() == 0) {
        chosen.notice = absl::StrCat("training on the CPU, although there is a GPU: ",
                                     status.ok() ? "another rank has none that it can use" : status.message());
      }
      return chosen;
    }
  }
  chosen.device = *std::move(device);
  if (world.rank() == 0) {
    chosen.notice =
        absl::StrCat("training on ", chosen.device->Name(), ", products in ", request.tf32 ? "tf32" : "fp32");
  }
  return chosen;
}

}  // namespace hadal
