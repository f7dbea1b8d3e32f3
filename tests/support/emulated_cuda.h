// An emulation of the CUDA runtime in host memory, to run kernels/cuda_host/cuda_*.cc without a GPU. It follows the
// functions and rules of NVIDIA's reference of the runtime (streams, events, capture, memory, errors). A test links
// emulated_cuda_runtime.cc, which defines the functions (cudaMalloc …), instead of cudart, and kernels that were built
// for the emulator.
//
// It runs work as late as the rules allow, and chooses at random where they leave a choice:
//   - work on a stream runs when the host waits for it, or during a later call; streams overtake each other unless
//     events order them;
//   - a host function runs in a thread of its own, and what follows on its stream after it;
//   - streams share hardware queues: stream n is in queue n modulo their number, and work in a queue runs in the order
//     of submission;
//   - a copy from pinned memory reads it when the copy runs; a copy from other host memory has read it when the call
//     returns; a copy to other host memory waits;
//   - device memory initially has 0xFF bytes, is aligned to exactly 256 bytes, and the host cannot access it (a fault);
//   - a query that finds unfinished work leaves cudaErrorNotReady as the last error, which the next launch reports as
//     its own;
//   - freeing memory that unfinished work uses, or destroying a stream or graph in use, aborts;
//   - while a stream records, the recording thread must not wait, query, allocate or use an event (the call fails with
//     a message); but a stream that awaits an event of a recorded stream becomes a branch of its graph, which must be
//     awaited by the recording stream before the end. A graph runs in the order of recording;
//   - streams and memory belong to the thread's current device; a thread with another current device cannot launch
//     there (abort), and a kernel cannot access another device's memory.
// Limitations: all devices share one amount of memory; only the functions that hadal calls; no legacy stream, peer
// access or managed memory. Thread safety: as the runtime's: any thread may call anything; each thread has its own last
// error.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <deque>
#include <limits>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "tests/support/guarded_memory.h"
#include "tests/support/kernel_emulator.h"

namespace hadal::testing {

class EmulatedCuda {
 public:
  // The instance that the runtime's functions use.
  static EmulatedCuda& Instance();

  // Properties of the emulated machine, set by a test before the calls. For a whole program: HADAL_EMULATED_GPUS
  // (devices), HADAL_EMULATED_DRIVER (driver), HADAL_EMULATED_QUEUES (hardware_queues).
  struct Machine {
    int driver = CUDART_VERSION;  // the CUDA version it supports; 0: no driver
    int devices = 1;              // visible devices; all are equal
    int major = 9;                // of the compute capability
    int hardware_queues = 32;
    int64_t bytes = int64_t{1} << 34;
    bool memory_for_graphs = true;
    // Epilogues of cuBLASLt: without an algorithm; with one of a different kind; with one that does not split the sum
    // over k.
    std::set<int> refused_epilogues, slow_epilogues, unsplit_epilogues;
    int most_products_together = 65535;  // of cuBLASLt
  };
  Machine machine;
  // Makes the next work fail like a kernel with an invalid pointer: every later call fails, until Repair.
  void BreakNextWork() { break_next_ = true; }
  void Repair() { fault_ = cudaSuccess; }
  // Makes the device hang after `work` more items of work: nothing runs any more, no event is reached. A call that
  // waits for the device never returns, nor does a launch behind kLaunchQueue others; both keep the runtime's lock, so
  // that any other call is stuck, too. For a whole program: HADAL_EMULATED_HANG.
  void HangAfter(int64_t work) { work_left_ = work; }
  static constexpr size_t kLaunchQueue = 1024;
  int64_t used_bytes();
  int64_t used_host_bytes();
  int64_t graphs();  // that can be launched

  // The runtime's functions and the errors that they return.
  cudaError_t Fault();
  cudaError_t MakeStream(cudaStream_t* stream);
  cudaError_t DestroyStream(cudaStream_t stream);
  cudaError_t Synchronize(cudaStream_t stream);
  cudaError_t Query(cudaStream_t stream);
  cudaError_t CallHost(cudaStream_t stream, cudaHostFn_t function, void* data);
  cudaError_t MakeEvent(cudaEvent_t* event, bool timed);
  cudaError_t DestroyEvent(cudaEvent_t event);
  cudaError_t RecordEvent(cudaEvent_t event, cudaStream_t stream);
  cudaError_t AwaitEvent(cudaStream_t stream, cudaEvent_t event);
  cudaError_t QueryEvent(cudaEvent_t event);
  cudaError_t Elapsed(float* milliseconds, cudaEvent_t first, cudaEvent_t second);
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
  // In pages of 2 MiB, the unit in which a driver allocates memory.
  int64_t FreeBytes();

  // For libraries above the runtime: enqueues work on a stream, or adds it to the graph that the stream records; tests
  // whether memory is the device's.
  void Enqueue(cudaStream_t stream, std::function<void()> run);
  bool Owns(const void* memory, int64_t bytes);

  // What launches check: the thread's last error (cudaGetLastError without the reset), and its current device.
  static cudaError_t& LastError();
  static int& CurrentDevice();

 private:
  struct StreamState;
  struct Marker {
    StreamState* stream = nullptr;
    const void* graph = nullptr;  // the recording that it is a part of
    bool reached = false;
    double reached_seconds = 0;
  };
  struct HostCall {
    std::function<void()> function;
    bool begun = false;
    std::atomic<bool> ended = false;
  };
  struct Work {
    std::function<void()> run;
    std::shared_ptr<HostCall> host;                      // calls this instead; there is nothing to run
    std::shared_ptr<Marker> awaits;                      // waits for the marker; there is nothing to run
    std::vector<std::pair<const void*, int64_t>> names;  // memory that it reads or writes when it runs
    cudaGraphExec_t graph = nullptr;
    int64_t order = 0;  // of submission
  };
  using Recording = std::vector<Work>;
  struct StreamState {
    explicit StreamState(uint64_t seed) : emulator(seed) {}
    cuda::KernelEmulator emulator;  // its address identifies the stream in kernel launches
    std::deque<Work> pending;
    std::shared_ptr<Recording> recording;
    std::thread::id recorder;
    // Whether it is a branch of the recording, and has work that the recording stream does not await; its last event.
    bool branch = false, unjoined = false;
    const Marker* last = nullptr;
    int device = 0;      // its maker's
    int64_t number = 0;  // in the order of making
  };

  EmulatedCuda();
  StreamState& StateOf(cudaStream_t stream);
  void Put(StreamState& stream, Work work);
  // Run the stream's next work item, its next few, or all. RunNext REQUIRES: an item is queued, and the memory is open.
  // Returns false if it waits for a host function.
  bool RunNext(StreamState& stream);
  bool RunBefore(const StreamState& stream);
  void Run(StreamState& stream, size_t most);
  void Drain(StreamState& stream);
  // Runs some of the queued work, or none, at random.
  void Advance();
  bool Inside(const std::map<std::byte*, int64_t>& allocations, const void* memory, int64_t bytes) const;
  // Whether unfinished work uses any of these bytes.
  bool InUse(const void* memory, int64_t bytes) const;
  bool ThisThreadRecords() const;

  std::mutex mutex_;
  std::mt19937_64 random_{20261121};
  cudaError_t fault_ = cudaSuccess;
  bool break_next_ = false;
  std::atomic<int64_t> work_left_ = std::numeric_limits<int64_t>::max();  // until the device hangs
  std::map<std::byte*, int64_t> device_, host_;                           // start → bytes
  std::map<std::byte*, int> device_of_;                                   // start → whose kernels reach it
  GuardedMemory guarded_;                                                 // of `device_`
  int64_t used_bytes_ = 0;
  std::map<cudaStream_t, std::unique_ptr<StreamState>> streams_;
  std::map<cudaEvent_t, std::shared_ptr<Marker>> events_;  // null: not recorded yet
  std::set<cudaEvent_t> timed_events_;
  std::map<cudaGraph_t, std::shared_ptr<Recording>> recordings_;
  std::map<cudaGraphExec_t, std::unique_ptr<Recording>> graphs_;
  uint64_t next_name_ = 1;  // of events and graphs
  int64_t next_order_ = 0, next_stream_ = 0;
};

}  // namespace hadal::testing
