#include "launch/device_choice.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda_host/cuda_device.h"
#include "launch/exit_code.h"
#include "layers/device_support.h"
#include "runtime/bytes.h"
#include "runtime/check.h"
#include "runtime/device_watch.h"
#include "runtime/machine.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

absl::StatusOr<std::unique_ptr<Device>> OpenFor(const DeviceRequest& request, const ModelPlan& plan,
                                                const TrainOptions& options, int local_rank) {
  const bool tf32 = options.precision == TrainingPrecision::kTf32;
  DeviceWatch::Options watch{.timeout = absl::Seconds(options.pipeline.wait_timeout_seconds), .hung = request.hung};
  if (!watch.hung) {
    const std::string who = absl::StrCat(request.doing, " [", HostName(), ", local rank ", local_rank, "]");
    watch.hung = [who](const std::string& what) { EndHung(who, what, {}); };
  }
  HADAL_ASSIGN_OR_RETURN(std::unique_ptr<Device> device,
                         cuda::OpenCudaDevice({.local_rank = local_rank,
                                               .tf32 = tf32,
                                               .weight_gradient_batch = options.weight_gradient_batch,
                                               .watch = std::move(watch)}));
  ModelPlan stored = plan;
  stored.compute_storage = DeviceStorage(options.precision);
  HADAL_RETURN_IF_ERROR(CheckDeviceSupport(stored));
  return device;
}

// The CPU instead of a GPU, for a run of this precision.
absl::StatusOr<DeviceDecision> DecideCpu(TrainingPrecision precision, const std::string& why) {
  if (precision == TrainingPrecision::kAuto || precision == TrainingPrecision::kFp32) return DeviceDecision();
  const char* word = precision == TrainingPrecision::kBf16 ? "bf16" : "tf32";
  return InvalidArgumentError("device.precision = \"", word, "\" needs a GPU, but ", why,
                              "; a CPU trains in fp32: set it to \"auto\" or \"fp32\"");
}

const char* ProductsIn(Storage storage, TrainingPrecision precision) {
  if (storage == Storage::kBFloat16) return "bf16";
  return precision == TrainingPrecision::kTf32 ? "tf32" : "fp32";
}

// A message for the user if ranks have another kind of GPU or driver than rank 0, whose products may sum in another
// order; else "".
std::string UnlikeDevices(std::span<const DeviceFacts> ranks) {
  for (size_t rank = 1; rank < ranks.size(); ++rank) {
    if (ranks[rank].name == ranks[0].name) continue;
    return absl::StrCat("; the ranks' GPUs are not alike (rank 0: ", ranks[0].name, "; rank ", rank, ": ",
                        ranks[rank].name, "): last bits will depend on which rank computes what");
  }
  return "";
}

}  // namespace

void EndHung(const std::string& who, const std::string& what, std::function<void()> flush) {
  std::fprintf(stderr, "hadal %s: %s\n", who.c_str(), what.c_str());
  if (flush) {
    std::packaged_task<void()> task(std::move(flush));
    const std::future<void> flushed = task.get_future();
    try {
      std::thread(std::move(task)).detach();
      flushed.wait_for(std::chrono::seconds(kLongestFlushSeconds));
    } catch (const std::system_error&) {
      // No thread can be started: the message is on stderr.
    }
  }
  _exit(kExitHang);
}

FoundDevice FindDevice(const DeviceRequest& request, const ModelPlan& plan, const TrainOptions& options,
                       int local_rank) {
  FoundDevice found{.facts = {.host = HostName()}};
  if (request.kind == "cpu") {
    found.facts.why_none = "--device is cpu";
    return found;
  }
  absl::StatusOr<std::unique_ptr<Device>> device = OpenFor(request, plan, options, local_rank);
  if (!device.ok()) {
    const std::string why(device.status().message());
    found.facts.why_none = why.empty() ? "no reason is known" : why;
    found.facts.absent = absl::IsNotFound(device.status());
    return found;
  }
  found.device = *std::move(device);
  found.facts.name = found.device->Name();
  found.facts.identity = found.device->Identity();
  // NCCL takes two slices of one GPU (MIG) for one: it compares hosts and buses.
  const absl::StatusOr<cuda::CudaFacts> seen = cuda::LookAtCudaDevice({.local_rank = local_rank});
  const char* const nccl_host = std::getenv("NCCL_HOSTID");
  found.facts.gpu = seen.ok() && !seen->bus.empty()
                        ? absl::StrCat("GPU ", seen->bus, " of ", nccl_host == nullptr ? found.facts.host : nccl_host)
                        : found.facts.identity;
  found.facts.free_bytes = found.device->FreeBytes();
  return found;
}

absl::StatusOr<DeviceDecision> DecideDevice(const DeviceRequest& request, TrainingPrecision precision,
                                            std::span<const DeviceFacts> ranks) {
  HADAL_CHECK(!ranks.empty());
  if (request.kind == "cpu") return DecideCpu(precision, "--device is cpu");
  const auto has_none = [](const DeviceFacts& facts) { return !facts.why_none.empty(); };
  const auto lacking = std::ranges::find_if(ranks, has_none);
  if (lacking == ranks.end()) {
    const Storage storage = DeviceStorage(precision);
    return DeviceDecision{.gpu = true,
                          .compute_storage = storage,
                          .notice = absl::StrCat(request.doing, " on ", ranks[0].name, ", products in ",
                                                 ProductsIn(storage, precision), UnlikeDevices(ranks))};
  }
  const std::string why = ranks.size() == 1 ? lacking->why_none
                                            : absl::StrCat("rank ", lacking - ranks.begin(), " (host ", lacking->host,
                                                           "): ", lacking->why_none);
  if (request.kind == "cuda") return InvalidArgumentError("--device cuda: ", why);
  if (!std::ranges::all_of(ranks, has_none)) {
    return InternalError(why,
                         "; other ranks can use a GPU. Leave that host out (hadal doctor names all such ranks), or "
                         "give --device cpu to leave every GPU idle.");
  }
  HADAL_ASSIGN_OR_RETURN(DeviceDecision cpu, DecideCpu(precision, why));
  // Users of a host without a driver expect a CPU.
  if (!std::ranges::all_of(ranks, &DeviceFacts::absent)) {
    cpu.notice = absl::StrCat(request.doing, " on the CPU: ", why);
  }
  return cpu;
}

absl::StatusOr<ChosenDevice> ChooseDevice(const DeviceRequest& request, const ModelPlan& plan,
                                          const TrainOptions& options, World& world, Collectives& collectives) {
  FoundDevice found = FindDevice(request, plan, options, world.local_rank());
  std::string bytes;
  AppendFields(DeviceFacts::Fields(found.facts), bytes);
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> gathered, collectives.AllGather(bytes, "the ranks' devices"));
  std::vector<DeviceFacts> ranks(gathered.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    std::string_view in = gathered[rank];
    HADAL_CHECK(TakeFields(in, DeviceFacts::Fields(ranks[rank])));
  }
  HADAL_ASSIGN_OR_RETURN(const DeviceDecision decision, AsCommonError(DecideDevice(request, options.precision, ranks)));
  return ChosenDevice{.device = decision.gpu ? std::move(found.device) : nullptr,
                      .compute_storage = decision.compute_storage,
                      .notice = world.rank() == 0 ? decision.notice : ""};
}

}  // namespace hadal
