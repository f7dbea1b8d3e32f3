// Chooses the device and the precision of a rank: --device auto|cpu|cuda, and device.precision of the config.
//
//   auto   a GPU if every rank finds one and the model trains on it. The CPU if no rank can use one (with a notice why,
//          unless no rank has a GPU and its driver). An error if only some can: one bad GPU must not leave all the
//          others idle
//   cpu    the CPU; no CUDA library is loaded
//   cuda   a GPU, or an error that says what is missing
// On a GPU the precision "auto" is bf16. The CPU computes in fp32 and refuses anything else.
// All ranks use the same kind of device. On a host with several GPUs a rank takes the one of its local rank among those
// that it sees: CUDA_VISIBLE_DEVICES and `srun --gpus-per-task` apply (kernels/cuda_host/visible_device.h).
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
  std::string doing = "training";  // what it is for, in messages
};

void AddDeviceFlags(Command command, DeviceRequest& request);

struct ChosenDevice {
  std::unique_ptr<Device> device;               // null: the CPU
  Storage compute_storage = Storage::kFloat32;  // for the run's ModelPlan
  std::string notice;                           // for the user; empty on all ranks but the first

  // `cpu`: the rank's stream on the CPU, used if there is no device.
  Stream StreamFor(const Stream& cpu) const { return device ? Stream::On(*device, cpu.threads()) : cpu; }
};

// `options`: the precision, and what a run needs besides its plan. Blocking: all ranks call it together.
// Errors: InvalidArgument if cuda, or a precision that only a GPU has, is asked for but impossible: no GPU or driver, a
// build without CUDA, or something the run needs has no GPU version; FailedPrecondition, with rank and host, if only
// some ranks can use one.
absl::StatusOr<ChosenDevice> ChooseDevice(const DeviceRequest& request, const ModelPlan& plan,
                                          const TrainOptions& options, World& world, Collectives& collectives);

// A message for the user if ranks have another kind of GPU or driver than rank 0, whose products may sum in another
// order; else "". `names`: Device::Name of all ranks.
std::string UnlikeDevices(std::span<const std::string> names);

}  // namespace hadal
