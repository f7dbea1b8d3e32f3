// Chooses the device and the precision of a rank: --device auto|cpu|cuda, and device.precision of the config.
//
//   auto   a GPU if every rank has one and it supports the model. The CPU if no rank can use one (with a notice, unless
//          no rank has a GPU and its driver). An error if only some can: one bad GPU must not idle all the others
//   cpu    the CPU; no CUDA library is loaded
//   cuda   a GPU, or an error with the reason
// On a GPU the precision "auto" is bf16. The CPU computes in fp32 and refuses any other precision.
// All ranks use the same kind of device. On a host with several GPUs a rank uses the visible GPU of its local rank:
// CUDA_VISIBLE_DEVICES and `srun --gpus-per-task` apply (kernels/cuda_host/visible_device.h).
#pragma once

#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "launch/job/world.h"
#include "layers/model_plan.h"
#include "pipeline/plan/train_options.h"
#include "runtime/comm/collectives.h"
#include "runtime/device.h"
#include "runtime/storage.h"
#include "runtime/stream.h"
#include "tools/command_line.h"

namespace hadal {

struct DeviceRequest {
  std::string kind = "auto";
  std::string doing = "training";  // purpose, for messages
};

void AddDeviceFlags(Command command, DeviceRequest& request);

struct ChosenDevice {
  std::unique_ptr<Device> device;               // null: the CPU
  Storage compute_storage = Storage::kFloat32;  // for the run's ModelPlan
  std::string notice;                           // for the user; empty on all ranks but the first

  // `cpu`: the rank's CPU stream, returned if there is no device.
  Stream StreamFor(const Stream& cpu) const { return device ? Stream::On(*device, cpu.threads()) : cpu; }
};

// `options`: the precision, and what else a run needs of a device. Blocking: all ranks must call it.
// Errors: InvalidArgument if cuda, or a precision that needs a GPU, is requested but not possible: no GPU or driver, a
// build without CUDA, or a part of the run without a GPU version; FailedPrecondition, with rank and host, if only some
// ranks can use a GPU.
absl::StatusOr<ChosenDevice> ChooseDevice(const DeviceRequest& request, const ModelPlan& plan,
                                          const TrainOptions& options, World& world, Collectives& collectives);

// Returns a notice for the user if the ranks' GPUs or drivers differ from rank 0's, because their products may sum in
// another order; else "". `names`: Device::Name of all ranks.
std::string UnlikeDevices(std::span<const std::string> names);

}  // namespace hadal
