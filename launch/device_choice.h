// Chooses the device and the precision of a rank: --device auto|cpu|cuda, and device.precision of the config.
//
//   auto   GPUs if every rank has one that supports the model. The CPU if no rank can use a GPU; the user gets a notice
//          with the reason if some rank's host has an NVIDIA driver. An error if only some ranks can use one: because
//          of one bad GPU the others must not be idle
//   cpu    the CPU; no CUDA library is loaded
//   cuda   a GPU, or an error that says what is missing
// On a GPU the precision "auto" is bf16. The CPU computes in fp32 and refuses anything else.
// All ranks use the same kind of device. Of the GPUs that a rank sees (CUDA_VISIBLE_DEVICES and `srun --gpus-per-task`
// apply), it takes the one with the number of its local rank (kernels/cuda_host/cuda_device.h).
// Each rank looks for its GPU (FindDevice); what all use is a function of what they found (DecideDevice).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <tuple>

#include "absl/status/statusor.h"
#include "launch/world.h"
#include "layers/model_plan.h"
#include "pipeline/options/train_options.h"
#include "runtime/comm/collectives.h"
#include "runtime/device.h"
#include "runtime/storage.h"
#include "runtime/stream.h"

namespace hadal {

// Ends a process whose device hangs (runtime/device_watch.h), with kExitHang and a message about the work that the
// device does not finish.
//
// Nothing is freed and MPI_Finalize is not called, because both may wait for the device, or for ranks that wait for
// this one. The launcher then ends the job: mpirun and srun do so when a rank exits without MPI_Finalize.
inline constexpr int kLongestFlushSeconds = 10;
// Prints "hadal <who>: <what>" to stderr, calls `flush`, and exits with kExitHang without running destructors. `flush`
// writes the run's logs; it may be empty. After kLongestFlushSeconds the process exits even if `flush` still waits for
// a file server or for a lock that the stuck thread holds. Any thread may call EndHung.
[[noreturn]] void EndHung(const std::string& who, const std::string& what, std::function<void()> flush);

struct DeviceRequest {
  std::string kind = "auto";
  std::string doing = "training";  // purpose, for messages
  // Ends the process if the GPU hangs (DeviceWatch::Options). Empty: EndHung does.
  std::function<void(const std::string& what)> hung;
};

// The facts about its GPU that a rank sends to the others.
struct DeviceFacts {
  std::string host;
  std::string why_none;        // why the rank cannot compute on a GPU; empty: it can
  bool absent = false;         // why_none is that there is no driver
  std::string name, identity;  // those of runtime/device.h
  std::string gpu;             // the GPU, which NCCL does not let two ranks share: "GPU 0000:10:00.0 of node7"
  int64_t free_bytes = 0;      // of GPU memory once the rank has opened it; less what ranks that opened it earlier use
  int nccl = 0;                // version of the NCCL library (transport_choice.h); 0: none, or not looked for
  std::string why_no_nccl;     // why nccl is 0
  std::string nccl_variables;  // NcclConditions::variables
  std::string nccl_refusal;    // NcclConditions::refusal

  template <typename Self>
  static auto Fields(Self& f) {
    return std::tie(f.host, f.why_none, f.absent, f.name, f.identity, f.free_bytes, f.nccl, f.why_no_nccl,
                    f.nccl_variables, f.nccl_refusal, f.gpu);
  }
};

struct FoundDevice {
  std::unique_ptr<Device> device;  // null: none that this run can use
  DeviceFacts facts;
};
// Opens this rank's GPU, if `request` allows one and the GPU supports `plan`. A wait for it that lasts longer than
// pipeline.wait_timeout_seconds counts as a hang (runtime/device_watch.h). Blocking: a second or two.
FoundDevice FindDevice(const DeviceRequest& request, const ModelPlan& plan, const TrainOptions& options,
                       int local_rank);

struct DeviceDecision {
  bool gpu = false;
  Storage compute_storage = Storage::kFloat32;  // for the run's ModelPlan
  std::string notice;                           // for the user; empty: nothing to say
};
// Returns the device that all ranks compute on. Pure.
// Errors: InvalidArgument if cuda, or a precision that only a GPU has, is requested but impossible: no GPU or driver, a
// build without CUDA, or no GPU kernel for something the run needs; Internal, with rank and host, if only some ranks
// can use one.
absl::StatusOr<DeviceDecision> DecideDevice(const DeviceRequest& request, TrainingPrecision precision,
                                            std::span<const DeviceFacts> ranks);

struct ChosenDevice {
  std::unique_ptr<Device> device;  // null: the CPU
  Storage compute_storage = Storage::kFloat32;
  std::string notice;  // for the user; empty on all ranks but the first

  // `cpu`: the rank's CPU stream, returned if there is no device.
  Stream StreamFor(const Stream& cpu) const { return device ? Stream::On(*device, cpu.threads()) : cpu; }
};
// Calls FindDevice, exchanges the facts and calls DecideDevice, for commands whose ranks exchange nothing else when
// they start. Blocking: all ranks call it. Errors: those of DecideDevice and of Communicator::Wait.
absl::StatusOr<ChosenDevice> ChooseDevice(const DeviceRequest& request, const ModelPlan& plan,
                                          const TrainOptions& options, World& world, Collectives& collectives);

}  // namespace hadal
