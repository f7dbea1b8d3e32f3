// A device with memory and an order of its own: a GPU, or in tests one that is emulated.
//
// The CPU needs no Device: code has a `Device*`, and null is the CPU, whose memory is the process's. Everything that touches the arena
// from outside a kernel goes through this interface, or through Stream's verbs, which do for the CPU what it does for a device.
//
//   memory   Allocate, Free: the device's;  AllocateHost, FreeHost: the host's, where the device copies fastest (pinned)
//   order    kernels and copies run one after another, in the order of the calls; the host does not wait for kernels
//   copies   CopyIn, CopyOut return when the host's side may be reused or read; the others are only put in order
//   queues   orders beside this one, for transfers (device_queues.h)
//   capture  what is launched between BeginCapture and EndCapture is recorded, and launched as one as often as wanted (a CUDA graph)
// Standstill: asked for something new the driver may let the host wait for all that the device has been given, on every queue: at the first
// launch of a kernel, a product or a graph, at a recording, when memory is taken, given back or asked about, and when a queue or an event is
// made. What runs on a queue and waits for the host's next step would then wait for ever: whoever starts such work lets it end before (OnStandstill).
// Errors: Allocate's are absl::Status. A device that fails in the middle of its work (a kernel's fault, a lost GPU) ends the process with
// the driver's words: nothing on it can be trusted or saved any more; the checkpoint before it can.
// Threads: one thread makes all calls, but CopyOut, which any thread may make beside it (during a capture it waits for its end).
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

// A recorded run of kernels, products and copies within the device. It reads and writes the places that were given when it was recorded.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  // How many it stands for.
  virtual int64_t launches() const = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  // "NVIDIA H200, sm_90, driver 13.0".
  virtual std::string Name() const = 0;
  // The same for two ranks just where they share it: "GPU-1b4c…", unlike all others of a cluster.
  virtual std::string Identity() const = 0;
  // What Allocate could still give, about.
  virtual int64_t FreeBytes() const = 0;
  // The maths it has.
  virtual const DeviceKernels& kernels() const = 0;

  // `bytes` > 0, zero-filled, on a 256-byte boundary. Errors: ResourceExhausted.
  virtual absl::StatusOr<std::byte*> Allocate(int64_t bytes) = 0;
  virtual void Free(std::byte* memory) = 0;
  virtual absl::StatusOr<std::byte*> AllocateHost(int64_t bytes) = 0;
  virtual void FreeHost(std::byte* memory) = 0;

  virtual void CopyIn(void* to, const void* from_host, int64_t bytes) = 0;
  // As CopyIn, but only put in order: `from_host` is of AllocateHost and stays as it is until the next Synchronize.
  virtual void EnqueueCopyIn(void* to, const void* from_host, int64_t bytes) = 0;
  virtual void CopyOut(void* to_host, const void* from, int64_t bytes) = 0;
  virtual void CopyWithin(void* to, const void* from, int64_t bytes) = 0;
  virtual void Clear(void* memory, int64_t bytes) = 0;  // every byte 0
  // Waits until everything so far is done.
  virtual void Synchronize() = 0;
  virtual DeviceQueues& queues() = 0;
  // Whether it is; does not wait.
  virtual bool Idle() = 0;

  // From here on kernels, products, CopyWithin and Clear are recorded and do not run. Until EndCapture nothing else may be called, nor
  // may the device be waited for (aborts).
  virtual void BeginCapture() = 0;
  virtual bool capturing() const = 0;
  // Errors: ResourceExhausted, where the graph does not fit into the device's memory; nothing has run then either.
  virtual absl::StatusOr<std::unique_ptr<DeviceGraph>> EndCapture() = 0;
  // Puts a recording of this device in order, as one launch.
  virtual void Launch(DeviceGraph& graph) = 0;
  // What the host has launched so far: kernels, products, copies within the device, graphs (one each).
  virtual int64_t launches() const = 0;

  // `before` is called before each standstill, but not within a capture, whose beginning is one; it may use queues and events. Null: nobody
  // wants to know.
  virtual void OnStandstill(std::function<void()> before) = 0;

  // Who wants to know what is being launched; null: nobody.
  virtual Profiler* profiler() { return nullptr; }
};

}  // namespace hadal
