#include "kernels/cuda_host/held_streams.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "kernels/cuda/operations.h"
#include "runtime/clock.h"
#include "runtime/status_macros.h"

namespace hadal::cuda {
namespace {

constexpr double kPatienceSeconds = 0.02;
constexpr int kLeastLooks = 100;  // also if this thread got no core meanwhile

absl::Status StatusOf(cudaError_t error) {
  if (error == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();  // clears the error for the next launch
  return UnavailableError("counting hardware queues: ", cudaGetErrorString(error));
}

class Streams {
 public:
  ~Streams();
  absl::Status Make(int streams, int discarded);
  absl::StatusOr<int> HeldBehind(int blocked);

 private:
  static void AwaitOpen(void* open) { static_cast<std::atomic<bool>*>(open)->wait(false); }
  void Open() {
    open_ = true;
    open_.notify_all();
  }
  // Whether the stream has run what was enqueued before `done_` was recorded.
  absl::StatusOr<bool> Done(int stream);
  absl::Status Await();
  void Touch(int stream) { Add(streams_[stream], {.sum = {number_, 1}, .values = {number_, 1}}); }

  std::vector<cudaStream_t> streams_;
  std::vector<cudaEvent_t> done_;  // one for each stream, and one for the blocked stream
  float* number_ = nullptr;
  std::atomic<bool> open_ = true;
};

Streams::~Streams() {
  Open();
  Await().IgnoreError();
  for (cudaStream_t stream : streams_) cudaStreamDestroy(stream);
  for (cudaEvent_t event : done_) cudaEventDestroy(event);
  cudaFree(number_);
}

absl::Status Streams::Make(int streams, int discarded) {
  int least = 0, greatest = 0;
  HADAL_RETURN_IF_ERROR(StatusOf(cudaDeviceGetStreamPriorityRange(&least, &greatest)));
  HADAL_RETURN_IF_ERROR(StatusOf(cudaMalloc(reinterpret_cast<void**>(&number_), sizeof(float))));
  for (int i = 0; i <= streams; ++i) {
    cudaEvent_t event = nullptr;
    HADAL_RETURN_IF_ERROR(StatusOf(cudaEventCreateWithFlags(&event, cudaEventDisableTiming)));
    done_.push_back(event);
    if (i == streams) break;
    cudaStream_t stream = nullptr;
    for (int other = 0; other < i * discarded; ++other) {
      HADAL_RETURN_IF_ERROR(StatusOf(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)));
      HADAL_RETURN_IF_ERROR(StatusOf(cudaStreamDestroy(stream)));
    }
    HADAL_RETURN_IF_ERROR(
        StatusOf(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, i % 3 == 0 ? greatest : least)));
    streams_.push_back(stream);
    Touch(i);  // a kernel's first launch may wait for the whole device
  }
  return Await();
}

absl::StatusOr<bool> Streams::Done(int stream) {
  const cudaError_t error = cudaEventQuery(done_[stream]);
  if (error != cudaErrorNotReady) HADAL_RETURN_IF_ERROR(StatusOf(error));
  if (error == cudaErrorNotReady) cudaGetLastError();
  return error == cudaSuccess;
}

absl::Status Streams::Await() {
  for (cudaStream_t stream : streams_) HADAL_RETURN_IF_ERROR(StatusOf(cudaStreamSynchronize(stream)));
  return absl::OkStatus();
}

absl::StatusOr<int> Streams::HeldBehind(int blocked) {
  const int count = static_cast<int>(streams_.size()), next = (blocked + 1) % count;
  cudaEvent_t const behind = done_.back();
  open_ = false;
  const absl::Cleanup open = [this] { Open(); };
  HADAL_RETURN_IF_ERROR(StatusOf(cudaLaunchHostFunc(streams_[blocked], AwaitOpen, &open_)));
  HADAL_RETURN_IF_ERROR(StatusOf(cudaEventRecord(behind, streams_[blocked])));
  HADAL_RETURN_IF_ERROR(StatusOf(cudaStreamWaitEvent(streams_[next], behind, 0)));
  std::vector<int> waiting;
  for (int i = 0; i < count; ++i) {
    if (i == blocked || i == next) continue;
    Touch(i);
    HADAL_RETURN_IF_ERROR(StatusOf(cudaEventRecord(done_[i], streams_[i])));
    waiting.push_back(i);
  }
  const Stopwatch watch;
  for (int look = 0; !waiting.empty() && (look < kLeastLooks || watch.Seconds() < kPatienceSeconds); ++look) {
    std::vector<int> still;
    for (int i : waiting) {
      HADAL_ASSIGN_OR_RETURN(const bool done, Done(i));
      if (!done) still.push_back(i);
    }
    waiting = std::move(still);
  }
  Open();
  HADAL_RETURN_IF_ERROR(Await());
  return static_cast<int>(waiting.size());
}

}  // namespace

absl::StatusOr<HeldStreams> CountHeldStreams(int streams, int discarded) {
  Streams made;
  HADAL_RETURN_IF_ERROR(made.Make(streams, discarded));
  HeldStreams held;
  int total = 0;
  for (int i = 0; i < streams; ++i) {
    HADAL_ASSIGN_OR_RETURN(const int behind, made.HeldBehind(i));
    total += behind;
    held.most = std::max(held.most, behind);
  }
  held.average = static_cast<double>(total) / streams;
  return held;
}

}  // namespace hadal::cuda
