// What a rank computes on and in which precision: --device auto|cpu|cuda, device.precision of the config.
//
//   auto   a GPU where every rank finds one and the model trains on it; the CPU where none can use one (saying why,
//          unless no rank has a GPU and its driver); an error where some can and others cannot: one bad GPU of many
//          must not leave all the others idle
//   cpu    the CPU; no library of CUDA is touched
//   cuda   a GPU, or an error that says what is missing
// On a GPU "auto" is bf16; the CPU computes in fp32 and refuses anything else.
// All ranks take the same kind. On a host with several GPUs a rank takes the one of its local number among those that
// it sees: CUDA_VISIBLE_DEVICES and `srun --gpus-per-task` hold (kernels/device/visible_device.h).
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "launch/world.h"
#include "layers/model_plan.h"
#include "pipeline/train_options.h"
#include "runtime/comm/collectives.h"
#include "runtime/device.h"
#include "runtime/storage.h"
#include "runtime/stream.h"

namespace CLI {
class App;
}

namespace hadal {

struct DeviceRequest {
  std::string kind = "auto";
  std::string doing = "training";  // what people are told it is for
};

void AddDeviceFlags(CLI::App& command, DeviceRequest& request);

struct ChosenDevice {
  std::unique_ptr<Device> device;               // null: the CPU
  Storage compute_storage = Storage::kFloat32;  // for the run's ModelPlan
  std::string notice;                           // what people should know; empty on all ranks but the first

  // `cpu`: the rank's stream if there were no device.
  Stream StreamFor(const Stream& cpu) const { return device ? Stream::On(*device, cpu.threads()) : cpu; }
};

// `options`: the precision, and what a run wants besides its plan. Blocking: all ranks call it together.
// Errors: InvalidArgument where cuda, or a precision that only a GPU has, is asked for and cannot be: no GPU, driver or
// CUDA in this build, or something the run needs has no GPU version; FailedPrecondition, with rank and host, where only
// some ranks can use one.
absl::StatusOr<ChosenDevice> ChooseDevice(const DeviceRequest& request, const ModelPlan& plan,
                                          const TrainOptions& options, World& world, Collectives& collectives);

}  // namespace hadal
