#include "launch/job/device_choice.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda_host/cuda_device.h"
#include "layers/device_support.h"
#include "pipeline/plan/device_precision.h"
#include "runtime/host_name.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

absl::Status CheckRun(const ModelPlan& plan, const TrainOptions& options, const Device& device) {
  ModelPlan stored = plan;
  stored.compute_storage = DeviceStorage(options.precision);
  return CheckDeviceSupport(stored, device.kernels());
}

// Chooses the CPU instead of a GPU, for a run of this precision.
absl::StatusOr<ChosenDevice> ChooseCpu(TrainingPrecision precision, const std::string& why) {
  if (precision == TrainingPrecision::kAuto || precision == TrainingPrecision::kFp32) return ChosenDevice();
  const char* word = precision == TrainingPrecision::kBf16 ? "bf16" : "tf32";
  return AsCommonError(
      absl::InvalidArgumentError(absl::StrCat("device.precision = \"", word, "\" needs a GPU, but ", why,
                                              "; a CPU trains in fp32: set it to \"auto\" or \"fp32\"")));
}

// Returns why the first rank that cannot use a GPU cannot. Blocking: all ranks must call it.
absl::StatusOr<std::string> WhyNoGpu(const absl::Status& mine, Collectives& collectives) {
  const std::string why = mine.ok() ? "" : absl::StrCat("(host ", HostName(), "): ", mine.message());
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> all, collectives.AllGather(why, "choosing a device"));
  size_t rank = 0;
  while (rank + 1 < all.size() && all[rank].empty()) ++rank;
  return all.size() == 1 ? std::string(mine.message()) : absl::StrCat("rank ", rank, " ", all[rank]);
}

const char* ProductsIn(Storage storage, TrainingPrecision precision) {
  if (storage == Storage::kBFloat16) return "bf16";
  return precision == TrainingPrecision::kTf32 ? "tf32" : "fp32";
}

}  // namespace

std::string UnlikeDevices(std::span<const std::string> names) {
  for (size_t rank = 1; rank < names.size(); ++rank) {
    if (names[rank] == names[0]) continue;
    return absl::StrCat("the ranks' GPUs are not alike (rank 0: ", names[0], "; rank ", rank, ": ", names[rank],
                        "): last bits will depend on which rank computes what");
  }
  return "";
}

void AddDeviceFlags(Command command, DeviceRequest& request) {
  command
      .AddOption("--device", request.kind,
                 "Where to compute: auto (a GPU if there is one that supports the model), cpu or cuda")
      .OneOf({"auto", "cpu", "cuda"})
      .ShowDefault();
}

absl::StatusOr<ChosenDevice> ChooseDevice(const DeviceRequest& request, const ModelPlan& plan,
                                          const TrainOptions& options, World& world, Collectives& collectives) {
  if (request.kind == "cpu") return ChooseCpu(options.precision, "--device is cpu");
  const bool tf32 = options.precision == TrainingPrecision::kTf32;
  absl::StatusOr<std::unique_ptr<Device>> device =
      cuda::OpenCudaDevice({.local_rank = world.local_rank(), .tf32 = tf32});
  const absl::Status status = device.ok() ? CheckRun(plan, options, **device) : device.status();
  ChosenDevice chosen;
  if (request.kind == "cuda") {
    const absl::Status usage =
        status.ok() ? status : absl::InvalidArgumentError(absl::StrCat("--device cuda: ", status.message()));
    HADAL_RETURN_IF_ERROR(collectives.AllOk(usage, "choosing a GPU"));
  } else {
    HADAL_ASSIGN_OR_RETURN(const bool cpu, collectives.AnyRank(!status.ok(), "choosing a device"));
    if (cpu) {
      HADAL_ASSIGN_OR_RETURN(const std::string why, WhyNoGpu(status, collectives));
      HADAL_ASSIGN_OR_RETURN(const bool gpu, collectives.AnyRank(status.ok(), "choosing a device"));
      if (gpu) {
        return AsCommonError(absl::FailedPreconditionError(
            absl::StrCat(why,
                         "; other ranks can use a GPU. Leave that host out (hadal doctor names all such ranks), or "
                         "give --device cpu to leave every GPU idle.")));
      }
      // No notice on machines without any GPU, but one for a rank without a GPU among others that have one.
      HADAL_ASSIGN_OR_RETURN(const bool some, collectives.AnyRank(!absl::IsNotFound(status), "choosing a device"));
      HADAL_ASSIGN_OR_RETURN(chosen, ChooseCpu(options.precision, why));
      if (some && world.rank() == 0) {
        chosen.notice = absl::StrCat(request.doing, " on the CPU, although there is a GPU: ", why);
      }
      return chosen;
    }
  }
  chosen.device = *std::move(device);
  chosen.compute_storage = DeviceStorage(options.precision);
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> names, collectives.AllGather(chosen.device->Name(), "devices"));
  const std::string unlike = UnlikeDevices(names);
  if (world.rank() == 0) {
    chosen.notice =
        absl::StrCat(request.doing, " on ", chosen.device->Name(), ", products in ",
                     ProductsIn(chosen.compute_storage, options.precision), unlike.empty() ? "" : "; ", unlike);
  }
  return chosen;
}

}  // namespace hadal
