// The CUDA runtime in the host's memory, so that what calls it runs without a GPU: kernels/cuda_host/cuda_*.cc against
// the functions and rules that NVIDIA's reference of the runtime states (streams, events, capture, memory, errors). A
// test links emulated_cuda_runtime.cc, which defines the functions (cudaMalloc …), in place of cudart, and kernels that
// were built for the executor.
//
// It is as late as the rules allow, and chooses at random where they leave a choice:
//   - what is put into a stream runs when somebody waits for it, or at a later call, some day; streams overtake each
//     other but for events;
//   - a copy from pinned memory reads it when it runs; one from other host memory has read it when the call returns;
//     one to other host memory waits;
//   - device memory begins as 0xFF bytes, on 256 bytes and no more, and the host cannot touch it (a fault);
//   - a query that finds work under way leaves cudaErrorNotReady as the last error, which the next launch reports as
//     its own;
//   - memory that work under way still names cannot be freed, nor a stream or graph destroyed that is in use (abort);
//   - while a stream records, the recording thread may not wait, query, allocate or touch an event (the call fails and
//     says so).
//   - streams and memory are of the device that the thread has chosen; a thread that has chosen another cannot launch
//     there (abort), nor a kernel reach another device's memory.
// Limitations: all devices share one amount of memory; only the functions that hadal calls; no legacy stream, peer
// access or managed memory. Thread safety: as the runtime's: any thread may call anything; the last error is each
// thread's own.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cuda/executor.h"

namespace hadal::testing {

class EmulatedCuda {
 public:
  // The one that the runtime's functions speak of.
  static EmulatedCuda& Instance();

  // What a test sets before calls that should find it. For a whole program: HADAL_EMULATED_GPUS (devices),
  // HADAL_EMULATED_DRIVER (driver).
  struct Machine {
    int driver = CUDART_VERSION;  // what CUDA it is for; 0: there is none
    int devices = 1;              // visible ones; all are the same
    int major = 9;                // of the compute capability
    int64_t bytes = int64_t{1} << 34;
    bool memory_for_graphs = true;
    // Of cuBLASLt: without algorithm; with one of another kind; with one that does not split the sum over k.
    std::set<int> refused_epilogues, slow_epilogues, unsplit_epilogues;
  };
  Machine machine;
  // The next work that runs ends as a kernel does that follows a wild pointer: every call fails from then on, until
  // Repair.
  void BreakNextWork() { break_next_ = true; }
  void Repair() { fault_ = cudaSuccess; }
  int64_t used_bytes();
  int64_t used_host_bytes();
  int64_t graphs();  // that can be launched

  // What the runtime's functions do, and the error that they return.
  cudaError_t Fault();
  cudaError_t MakeStream(cudaStream_t* stream);
  cudaError_t DestroyStream(cudaStream_t stream);
  cudaError_t Synchronize(cudaStream_t stream);
  cudaError_t Query(cudaStream_t stream);
  cudaError_t MakeEvent(cudaEvent_t* event);
  cudaError_t DestroyEvent(cudaEvent_t event);
  cudaError_t RecordEvent(cudaEvent_t event, cudaStream_t stream);
  cudaError_t AwaitEvent(cudaStream_t stream, cudaEvent_t event);
  cudaError_t QueryEvent(cudaEvent_t event);
  cudaError_t Allocate(void** memory, size_t bytes);
  cudaError_t Free(void* memory);
  cudaError_t AllocateHost(void** memory, size_t bytes);
  cudaError_t FreeHost(void* memory);
  cudaError_t Copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
  cudaError_t Clear(void* memory, int value, size_t bytes, cudaStream_t stream);
  cudaError_t BeginCapture(cudaStream_t stream);
  cudaError_t EndCapture(cudaStream_t stream, cudaGraph_t* graph);
  cudaError_t Instantiate(cudaGraphExec_t* graph, cudaGraph_t recorded);
  cudaError_t Upload(cudaGraphExec_t graph, cudaStream_t stream);
  cudaError_t Launch(cudaGraphExec_t graph, cudaStream_t stream);
  cudaError_t Destroy(cudaGraph_t recorded);
  cudaError_t Destroy(cudaGraphExec_t graph);
  // In whole pages of 2 MiB, which a driver gives memory in.
  int64_t FreeBytes();

  // For libraries above the runtime: puts work into a stream, or into what it records; whether memory is the device's.
  void Enqueue(cudaStream_t stream, std::function<void()> run);
  bool Owns(const void* memory, int64_t bytes);

  // What launches check: the thread's last error (cudaGetLastError without the reset), and the device that it has
  // chosen.
  static cudaError_t& LastError();
  static int& CurrentDevice();

 private:
  struct StreamState;
  struct Marker {
    StreamState* stream = nullptr;
    bool reached = false;
  };
  struct Work {
    std::function<void()> run;
    std::shared_ptr<Marker> awaits;                      // nothing to run: until it is reached
    std::vector<std::pair<const void*, int64_t>> names;  // memory that it reads or writes when it runs
    cudaGraphExec_t graph = nullptr;
  };
  using Recording = std::vector<Work>;
  struct StreamState {
    explicit StreamState(uint64_t seed) : executor(seed) {}
    cuda::Executor executor;  // at its address: the stream, as kernels' launches know it
    std::deque<Work> pending;
    std::unique_ptr<Recording> recording;
    std::thread::id recorder;
    int device = 0;  // its maker's
  };
  struct Pages {
    std::byte* mapped = nullptr;
    int64_t mapped_bytes = 0, bytes = 0;
    int device = 0;  // whose kernels reach it
  };

  EmulatedCuda();
  StreamState& StateOf(cudaStream_t stream);
  void Put(StreamState& stream, Work work);
  // Runs the stream's next work, its next few, all of it.  REQUIRES for the first: something waits, and the memory is
  // open.
  void RunNext(StreamState& stream);
  void Run(StreamState& stream, size_t most);
  void Drain(StreamState& stream);
  // Some day is now: runs a little of what waits, or nothing.
  void Advance();
  void Protect(int protection);
  bool Inside(const std::map<std::byte*, int64_t>& allocations, const void* memory, int64_t bytes) const;
  // Whether work under way names any of these bytes.
  bool InUse(const void* memory, int64_t bytes) const;
  bool ThisThreadRecords() const;

  std::mutex mutex_;
  std::mt19937_64 random_{20261121};
  cudaError_t fault_ = cudaSuccess;
  bool break_next_ = false;
  std::map<std::byte*, int64_t> device_, host_;  // start → bytes
  std::map<std::byte*, Pages> pages_;            // of `device_`
  int64_t used_bytes_ = 0;
  std::map<cudaStream_t, std::unique_ptr<StreamState>> streams_;
  std::map<cudaEvent_t, std::shared_ptr<Marker>> events_;  // null: not recorded yet
  std::map<cudaGraph_t, std::unique_ptr<Recording>> recordings_;
  std::map<cudaGraphExec_t, std::unique_ptr<Recording>> graphs_;
  uint64_t next_name_ = 1;  // of events and graphs
};

}  // namespace hadal::testing
