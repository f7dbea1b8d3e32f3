// The interface of a device with its own memory and queues: a GPU, or an emulated one in tests.
//
// A null `Device*` means the CPU, whose memory is the process's. Code outside of kernels accesses the arena (arena.h)
// only through this interface or through Stream (stream.h), which covers the CPU and devices alike.
//
//   memory   Allocate, Free: device memory. AllocateHost, FreeHost: pinned host memory, for fast copies
//   order    kernels and copies run in the order of the calls, on the main queue; the host does not wait for kernels
//   copies   CopyIn, CopyOut return when the host memory may be reused or read; other copies are only enqueued
//   queues   further queues, for transfers (device_queues.h)
//   capture  launches between BeginCapture and EndCapture are recorded as a graph, which can be launched many times
// A standstill is a driver call that may make the host wait for all queues of the device: the first launch of a kernel,
// a matrix product or a graph; a capture; allocating, freeing or querying memory; making a queue or an event. If work
// on a queue can end only after the host does something (such as an NCCL message), it then never ends. Code that
// enqueues such work must register a callback that finishes it before each standstill (OnStandstill).
// Errors: Allocate, AllocateHost and EndCapture return absl::Status. If the device fails during its work (a kernel
// fault, a lost GPU) or hangs (device_watch.h), the process ends with a message, because its memory can no longer be
// trusted.
// Threads: one thread makes all calls, with one exception: a second thread may at any time, also during a capture, call
// EnqueueCopyOut, and of queues() Await, Record, Reached and AwaitOnHost, for a queue that only it uses.
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

// A recorded sequence of kernels, products and copies within the device. Every launch of it uses the memory addresses
// of the recording.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
};

class Device {
 public:
  virtual ~Device() = default;

  // For example "NVIDIA H200, sm_90, driver for CUDA 13.0".
  virtual std::string Name() const = 0;
  // For example "GPU-1b4c…", unique in the cluster: two ranks have the same string if and only if they share the
  // device.
  virtual std::string Identity() const = 0;
  // Approximate number of bytes that Allocate can still provide.
  virtual int64_t FreeBytes() const = 0;
  virtual const DeviceKernels& kernels() const = 0;

  // Returns `bytes` > 0 zero-filled bytes on a 256-byte boundary. Errors: ResourceExhausted.
  virtual absl::StatusOr<std::byte*> Allocate(int64_t bytes) = 0;
  virtual void Free(std::byte* memory) = 0;
  virtual absl::StatusOr<std::byte*> AllocateHost(int64_t bytes) = 0;
  virtual void FreeHost(std::byte* memory) = 0;

  virtual void CopyIn(void* to, const void* from_host, int64_t bytes) = 0;
  // As CopyIn, but only enqueues. `from_host` must be from AllocateHost and must not change before the host has seen
  // the copy done: by Synchronize, or by an event that was recorded on the main queue afterwards.
  virtual void EnqueueCopyIn(void* to, const void* from_host, int64_t bytes) = 0;
  virtual void CopyOut(void* to_host, const void* from, int64_t bytes) = 0;
  // As CopyOut, but only enqueues, on `queue`. `to_host` must be from AllocateHost. Its bytes are there when an event
  // that was recorded on the queue afterwards is reached.
  virtual void EnqueueCopyOut(DeviceQueues::Queue queue, void* to_host, const void* from, int64_t bytes) = 0;
  virtual void CopyWithin(void* to, const void* from, int64_t bytes) = 0;
  virtual void Clear(void* memory, int64_t bytes) = 0;  // sets every byte to 0
  // Waits until all work enqueued so far is done.
  virtual void Synchronize() = 0;
  virtual DeviceQueues& queues() = 0;
  // Whether all work enqueued so far is done. Does not wait.
  virtual bool Idle() = 0;

  // Starts a capture: kernels, products, CopyWithin, Clear and the events of a branch (device_queues.h) are recorded
  // instead of run. Until EndCapture this thread may make no other call (aborts).
  virtual void BeginCapture() = 0;
  virtual bool capturing() const = 0;
  // Ends the capture and returns the graph. Errors: ResourceExhausted if the graph does not fit into device memory;
  // nothing has been run.
  virtual absl::StatusOr<std::unique_ptr<DeviceGraph>> EndCapture() = 0;
  // Enqueues a graph of this device as one launch.
  virtual void Launch(DeviceGraph& graph) = 0;
  // The number of launches so far: kernels, products, copies within the device, graphs (one each).
  virtual int64_t launches() const = 0;

  // Registers `before` in place of an earlier one: it is called before each standstill. Null: none is called. It is not
  // called during a capture, because BeginCapture is itself a standstill. `before` may use queues and events.
  virtual void OnStandstill(std::function<void()> before) = 0;

  // Returns the profiler that receives named ranges of launches; null: none.
  virtual Profiler* profiler() { return nullptr; }
};

}  // namespace hadal
