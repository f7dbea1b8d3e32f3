// What a rank computes on: --device auto|cpu|cuda, and --tf32.
//
//   auto   a GPU where every rank finds one and the model trains on it, else the CPU (saying why where it was the model)
//   cpu    the CPU; no library of CUDA is touched
//   cuda   a GPU, or an error that says what is missing
// All ranks take the same kind. On a host with several GPUs a rank takes the one of its local number among those that it sees:
// CUDA_VISIBLE_DEVICES and `srun --gpus-per-task` hold (kernels/device/visible_device.h).
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "launch/world.h"
#include "layers/model_plan.h"
#include "pipeline/train_options.h"
#include "runtime/comm/collectives.h"
#include "runtime/device.h"
#include "runtime/stream.h"

namespace CLI {
class App;
}

namespace hadal {

struct DeviceRequest {
  std::string kind = "auto";
  bool tf32 = false;
};

void AddDeviceFlags(CLI::App& command, DeviceRequest& request);

struct ChosenDevice {
  std::unique_ptr<Device> device;  // null: the CPU
  std::string notice;              // what people should know; empty on all ranks but the first

  // `cpu`: the rank's stream if there were no device.
  Stream StreamFor(const Stream& cpu) const { return device ? Stream::On(*device, cpu.threads()) : cpu; }
};

// `options`: for what a run wants besides its plan. Blocking: all ranks call it together.
// Errors: InvalidArgument where cuda is asked for and cannot be: no GPU, driver or CUDA in this build, or something the run needs has no
// GPU version.
absl::StatusOr<ChosenDevice> ChooseDevice(const DeviceRequest& request, const ModelPlan& plan,
                                          const TrainOptions& options, World& world, Collectives& collectives);

}  // namespace hadal
