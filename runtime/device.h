// A device with memory and an order of work of its own: a GPU, or in tests an emulated one.
//
// The CPU needs no Device: a null `Device*` is the CPU, whose memory is the process's. All accesses to the arena from
// outside a kernel go through this interface, or through Stream, which does for the CPU what it does for a device.
//
//   memory   Allocate, Free: of the device;  AllocateHost, FreeHost: of the host, for fast copies (pinned)
//   order    kernels and copies run one after another, in the order of the calls; the host does not wait for kernels
//   copies   CopyIn, CopyOut return when the host's memory may be reused or read; other copies are only put in order
//   queues   other orders of work, for transfers (device_queues.h)
//   capture  what is launched between BeginCapture and EndCapture is recorded; it can then be launched as one, many
//            times (a CUDA graph)
// Standstill: some driver calls may make the host wait for all work of the device, on every queue: the first launch of
// a kernel, a product or a graph; a recording; taking, giving back or asking about memory; making a queue or an event.
// Work on a queue that needs the host's next step would then wait for ever. So whoever starts such work lets it end
// before a standstill (OnStandstill).
// Errors: those of Allocate are absl::Status. If a device fails in the middle of its work (a kernel's fault, a lost
// GPU), the process ends with the driver's message: nothing on the device can be trusted or saved, but the last
// checkpoint can.
// Threads: one thread makes all calls, except CopyOut, which any thread may make (during a capture it waits for its
// end).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/device_queues.h"

namespace hadal {

enum class DeviceKind { kCpu, kCuda };

struct DeviceKernels;  // kernels/device_kernels.h
class Profiler;        // runtime/profiler.h

// A recorded series of kernels, products and copies within the device. It uses the addresses it was recorded with.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  // How many recorded launches it stands for.
  virtual int64_t launches() const = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  // "NVIDIA H200, sm_90, driver 13.0".
  virtual std::string Name() const = 0;
  // Equal for two ranks if and only if they share the device: "GPU-1b4c…", unique in the cluster.
  virtual std::string Identity() const = 0;
  // About how many bytes Allocate could still give.
  virtual int64_t FreeBytes() const = 0;
  // The device's kernels.
  virtual const DeviceKernels& kernels() const = 0;

  // `bytes` > 0, zero-filled, on a 256-byte boundary. Errors: ResourceExhausted.
  virtual absl::StatusOr<std::byte*> Allocate(int64_t bytes) = 0;
  virtual void Free(std::byte* memory) = 0;
  virtual absl::StatusOr<std::byte*> AllocateHost(int64_t bytes) = 0;
  virtual void FreeHost(std::byte* memory) = 0;

  virtual void CopyIn(void* to, const void* from_host, int64_t bytes) = 0;
  // As CopyIn, but only put in order. `from_host` must be from AllocateHost and must not change until the next
  // Synchronize.
  virtual void EnqueueCopyIn(void* to, const void* from_host, int64_t bytes) = 0;
  virtual void CopyOut(void* to_host, const void* from, int64_t bytes) = 0;
  virtual void CopyWithin(void* to, const void* from, int64_t bytes) = 0;
  virtual void Clear(void* memory, int64_t bytes) = 0;  // every byte 0
  // Waits until everything so far is done.
  virtual void Synchronize() = 0;
  virtual DeviceQueues& queues() = 0;
  // Whether everything so far is done; does not wait.
  virtual bool Idle() = 0;

  // From now on kernels, products, CopyWithin and Clear are recorded and do not run. Until EndCapture no other call may
  // be made, and nobody may wait for the device (aborts).
  virtual void BeginCapture() = 0;
  virtual bool capturing() const = 0;
  // Errors: ResourceExhausted where the graph does not fit into the device's memory; nothing has run then either.
  virtual absl::StatusOr<std::unique_ptr<DeviceGraph>> EndCapture() = 0;
  // Puts a recording of this device in order, as one launch.
  virtual void Launch(DeviceGraph& graph) = 0;
  // What the host has launched so far: kernels, products, copies within the device, graphs (one each).
  virtual int64_t launches() const = 0;

  // Calls `before` before each standstill. Within a capture it is not called, because the beginning of a capture is
  // itself a standstill. `before` may use queues and events. Null: no call.
  virtual void OnStandstill(std::function<void()> before) = 0;

  // Gets the names of what is launched; null: no profiler.
  virtual Profiler* profiler() { return nullptr; }
};

}  // namespace hadal
