#include "tests/support/emulated_cuda.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "runtime/check.h"
#include "runtime/clock.h"
#include "tests/support/emulated_cublas_lt.h"

namespace hadal::testing {
namespace {

constexpr int64_t kGranularity = 2 << 20;  // of free memory
[[noreturn]] void Hang() {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

constexpr int64_t kBytesOfGraphNode = 1024;  // what a graph takes of the device's memory, about

}  // namespace

EmulatedCuda& EmulatedCuda::Instance() {
  static auto* const instance = new EmulatedCuda;
  return *instance;
}

// Opens the library that kernels/cuda_host/cublas_matmul.cc will find, which must be the emulated one.
EmulatedCuda::EmulatedCuda() {
  const std::string name = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
  void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  HADAL_CHECK(library != nullptr);
  const auto connect = reinterpret_cast<void (*)(const CublasLtSurroundings*)>(dlsym(library, kConnectCublasLt));
  HADAL_CHECK(connect != nullptr);
  const CublasLtSurroundings surroundings = {
      .enqueue = [](cudaStream_t stream, std::function<void()> run) { Instance().Enqueue(stream, std::move(run)); },
      .owns = [](const void* memory, int64_t bytes) { return Instance().Owns(memory, bytes); },
      .offers = [](int epilogue) { return Instance().machine.refused_epilogues.count(epilogue) == 0; },
      .differs = [](int epilogue) { return Instance().machine.slow_epilogues.count(epilogue) > 0; },
      .splits = [](int epilogue) { return Instance().machine.unsplit_epilogues.count(epilogue) == 0; },
      .most_together = [] { return int32_t{Instance().machine.most_products_together}; },
      .records =
          [] {
            const std::lock_guard lock(Instance().mutex_);
            return Instance().ThisThreadRecords();
          }};
  connect(&surroundings);
  const auto from_environment = [](const char* name, int& value) {
    if (const char* const text = std::getenv(name)) value = std::atoi(text);
  };
  from_environment("HADAL_EMULATED_GPUS", machine.devices);
  from_environment("HADAL_EMULATED_DRIVER", machine.driver);
  from_environment("HADAL_EMULATED_QUEUES", machine.hardware_queues);
  if (const char* const work = std::getenv("HADAL_EMULATED_HANG")) HangAfter(std::atoll(work));
}

cudaError_t& EmulatedCuda::LastError() {
  thread_local cudaError_t last = cudaSuccess;
  return last;
}

int& EmulatedCuda::CurrentDevice() {
  thread_local int current = 0;
  return current;
}

int64_t EmulatedCuda::used_bytes() {
  const std::lock_guard lock(mutex_);
  return used_bytes_;
}

int64_t EmulatedCuda::used_host_bytes() {
  const std::lock_guard lock(mutex_);
  int64_t bytes = 0;
  for (const auto& [memory, size] : host_) bytes += size;
  return bytes;
}

int64_t EmulatedCuda::graphs() {
  const std::lock_guard lock(mutex_);
  return std::ssize(graphs_);
}

int64_t EmulatedCuda::FreeBytes() {
  const std::lock_guard lock(mutex_);
  return (machine.bytes - used_bytes_) / kGranularity * kGranularity;
}

cudaError_t EmulatedCuda::Fault() {
  const std::lock_guard lock(mutex_);
  return fault_;
}

EmulatedCuda::StreamState& EmulatedCuda::StateOf(cudaStream_t stream) {
  const auto found = streams_.find(stream);
  HADAL_CHECK(found != streams_.end());  // the legacy stream, or one that is gone
  return *found->second;
}

bool EmulatedCuda::ThisThreadRecords() const {
  return std::any_of(streams_.begin(), streams_.end(), [](const auto& entry) {
    return entry.second->recording != nullptr && entry.second->recorder == std::this_thread::get_id();
  });
}

// ---- work ----

void EmulatedCuda::Put(StreamState& stream, Work work) {
  if (stream.recording != nullptr) {
    HADAL_CHECK(stream.recorder == std::this_thread::get_id());  // would be recorded
    stream.recording->push_back(std::move(work));
    if (stream.branch) stream.unjoined = true;
  } else {
    if (work_left_ <= 0 && stream.pending.size() >= kLaunchQueue) Hang();
    work.order = next_order_++;
    stream.pending.push_back(std::move(work));
  }
}

void EmulatedCuda::Enqueue(cudaStream_t stream, std::function<void()> run) {
  const std::lock_guard lock(mutex_);
  StreamState& state = StateOf(stream);
  HADAL_CHECK_EQ(state.device, CurrentDevice());
  Put(state, {.run = std::move(run)});
}

// Runs what must run before the stream's next work item. Returns false if that waits for a host function.
bool EmulatedCuda::RunBefore(const StreamState& stream) {
  const Work& next = stream.pending.front();
  for (const auto& [handle, other] : streams_) {
    if (other->number % machine.hardware_queues != stream.number % machine.hardware_queues) continue;
    while (other.get() != &stream && !other->pending.empty() && other->pending.front().order < next.order) {
      if (!RunNext(*other)) return false;
    }
  }
  while (next.awaits != nullptr && !next.awaits->reached) {
    if (!RunNext(*next.awaits->stream)) return false;
  }
  if (next.host == nullptr) return true;
  if (!std::exchange(next.host->begun, true)) {
    std::thread([call = next.host] {
      call->function();
      call->ended = true;
    }).detach();
  }
  return next.host->ended;
}

bool EmulatedCuda::RunNext(StreamState& stream) {
  HADAL_CHECK(!stream.pending.empty());
  if (!RunBefore(stream)) return false;
  const Work work = std::move(stream.pending.front());
  stream.pending.pop_front();
  --work_left_;
  if (work.run == nullptr) return true;
  if (std::exchange(break_next_, false)) fault_ = cudaErrorIllegalAddress;
  if (fault_ == cudaSuccess) work.run();
  return true;
}

void EmulatedCuda::Run(StreamState& stream, size_t most) {
  if (stream.pending.empty() || work_left_ <= 0) return;
  guarded_.Open();
  while (most > 0 && !stream.pending.empty() && RunNext(stream)) --most;
  guarded_.Close();
}

void EmulatedCuda::Drain(StreamState& stream) {
  do {
    Run(stream, stream.pending.size());
    if (work_left_ <= 0) Hang();
  } while (!stream.pending.empty());  // a host function has not ended
}

void EmulatedCuda::Advance() {
  if (streams_.empty() || random_() % 16 != 0) return;
  Run(*std::next(streams_.begin(), random_() % streams_.size())->second, random_() % 16);
}

// ---- streams and events ----

cudaError_t EmulatedCuda::MakeStream(cudaStream_t* stream) {
  const std::lock_guard lock(mutex_);
  auto state = std::make_unique<StreamState>(random_());
  state->device = CurrentDevice();
  state->number = next_stream_++;
  *stream = state->emulator.stream();
  for (const auto& [memory, device] : device_of_) {
    if (device == state->device) state->emulator.Register(memory, device_.at(memory));
  }
  state->emulator.Divert([this, owner = state.get()](const cuda::LaunchShape&, std::function<void()> launch) {
    HADAL_CHECK_EQ(LastError(), cudaSuccess);  // what kernels/cuda/thread_layer.h checks behind each launch
    HADAL_CHECK_EQ(owner->device, CurrentDevice());
    const std::lock_guard divert_lock(mutex_);
    Put(*owner, {.run = std::move(launch)});
    Advance();
  });
  streams_[*stream] = std::move(state);
  return cudaSuccess;
}

cudaError_t EmulatedCuda::DestroyStream(cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  HADAL_CHECK(StateOf(stream).pending.empty());
  HADAL_CHECK(StateOf(stream).recording == nullptr);
  streams_.erase(stream);
  return cudaSuccess;
}

cudaError_t EmulatedCuda::Synchronize(cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  if (StateOf(stream).recording != nullptr || ThisThreadRecords()) return cudaErrorStreamCaptureUnsupported;
  Drain(StateOf(stream));
  return fault_;
}

cudaError_t EmulatedCuda::Query(cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  if (StateOf(stream).recording != nullptr || ThisThreadRecords()) return cudaErrorStreamCaptureUnsupported;
  Advance();
  StreamState& state = StateOf(stream);
  if (fault_ != cudaSuccess || state.pending.empty()) return fault_;
  Run(state, 1 + random_() % 64);
  return cudaErrorNotReady;
}

cudaError_t EmulatedCuda::CallHost(cudaStream_t stream, cudaHostFn_t function, void* data) {
  const std::lock_guard lock(mutex_);
  StreamState& state = StateOf(stream);
  if (state.recording != nullptr || ThisThreadRecords()) return cudaErrorStreamCaptureUnsupported;
  Put(state, {.host = std::make_shared<HostCall>()});
  state.pending.back().host->function = [=] { function(data); };
  Advance();
  return fault_;
}

cudaError_t EmulatedCuda::MakeEvent(cudaEvent_t* event, bool timed) {
  const std::lock_guard lock(mutex_);
  *event = reinterpret_cast<cudaEvent_t>(next_name_++);
  events_[*event] = nullptr;
  if (timed) timed_events_.insert(*event);
  return cudaSuccess;
}

cudaError_t EmulatedCuda::DestroyEvent(cudaEvent_t event) {
  const std::lock_guard lock(mutex_);
  return events_.erase(event) == 1 ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

cudaError_t EmulatedCuda::RecordEvent(cudaEvent_t event, cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  StreamState& state = StateOf(stream);
  HADAL_CHECK_EQ(state.device, CurrentDevice());  // CUDA would open the current one
  if (!events_.contains(event)) return cudaErrorInvalidResourceHandle;
  if ((state.recording == nullptr) == ThisThreadRecords()) return cudaErrorStreamCaptureUnsupported;
  auto marker = std::make_shared<Marker>(Marker{.stream = &state, .graph = state.recording.get()});
  events_[event] = marker;
  state.last = marker.get();
  if (marker->graph != nullptr) return fault_;
  Put(state, {.run = [marker] {
        marker->reached_seconds = MonotonicSeconds();
        marker->reached = true;
      }});
  Advance();
  return fault_;
}

cudaError_t EmulatedCuda::AwaitEvent(cudaStream_t stream, cudaEvent_t event) {
  const std::lock_guard lock(mutex_);
  StreamState& state = StateOf(stream);
  HADAL_CHECK_EQ(state.device, CurrentDevice());
  const auto found = events_.find(event);
  if (found == events_.end()) return cudaErrorInvalidResourceHandle;
  Marker* const marker = found->second.get();
  const void* const graph = marker == nullptr ? nullptr : marker->graph;
  if (ThisThreadRecords() != (graph != nullptr)) return cudaErrorStreamCaptureIsolation;
  if (graph != nullptr) {
    StreamState& from = *marker->stream;
    if (graph != from.recording.get()) return cudaErrorCapturedEvent;
    if (state.recording == nullptr) state.branch = state.unjoined = true;
    state.recording = from.recording, state.recorder = from.recorder;
    if (from.last == marker) from.unjoined = false;
  } else if (marker != nullptr) {
    Put(state, {.awaits = found->second});
  }
  return fault_;
}

cudaError_t EmulatedCuda::QueryEvent(cudaEvent_t event) {
  const std::lock_guard lock(mutex_);
  const auto found = events_.find(event);
  if (found == events_.end()) return cudaErrorInvalidResourceHandle;
  if (ThisThreadRecords()) return cudaErrorStreamCaptureUnsupported;
  Advance();
  const Marker* const marker = found->second.get();
  if (fault_ != cudaSuccess || marker == nullptr || marker->reached) return fault_;
  Run(*marker->stream, 1 + random_() % 64);
  return cudaErrorNotReady;
}

cudaError_t EmulatedCuda::Elapsed(float* milliseconds, cudaEvent_t first, cudaEvent_t second) {
  const std::lock_guard lock(mutex_);
  double seconds = 0;
  for (const auto& [event, sign] : {std::pair(first, -1), std::pair(second, 1)}) {
    const auto found = events_.find(event);
    if (found == events_.end() || found->second == nullptr) return cudaErrorInvalidResourceHandle;
    if (!timed_events_.contains(event)) return cudaErrorInvalidResourceHandle;
    if (!found->second->reached) return cudaErrorNotReady;
    seconds += sign * found->second->reached_seconds;
  }
  *milliseconds = static_cast<float>(1e3 * seconds);
  return fault_;
}

// ---- graphs ----

cudaError_t EmulatedCuda::BeginCapture(cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  StreamState& state = StateOf(stream);
  if (state.recording != nullptr) return cudaErrorIllegalState;
  state.recording = std::make_unique<Recording>();
  state.recorder = std::this_thread::get_id();
  return fault_;
}

cudaError_t EmulatedCuda::EndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const std::lock_guard lock(mutex_);
  StreamState& state = StateOf(stream);
  if (state.recording == nullptr) return cudaErrorIllegalState;
  if (state.recorder != std::this_thread::get_id()) return cudaErrorStreamCaptureWrongThread;
  for (const auto& [handle, branch] : streams_) {
    if (!branch->branch || branch->recording != state.recording) continue;
    if (branch->unjoined) return cudaErrorStreamCaptureUnjoined;
    branch->recording = nullptr, branch->branch = false;
  }
  *graph = reinterpret_cast<cudaGraph_t>(next_name_++);
  recordings_[*graph] = std::exchange(state.recording, nullptr);
  return fault_;
}

cudaError_t EmulatedCuda::Instantiate(cudaGraphExec_t* graph, cudaGraph_t recorded) {
  const std::lock_guard lock(mutex_);
  const auto found = recordings_.find(recorded);
  if (found == recordings_.end()) return cudaErrorInvalidValue;
  *graph = nullptr;
  if (!machine.memory_for_graphs) return cudaErrorMemoryAllocation;
  *graph = reinterpret_cast<cudaGraphExec_t>(next_name_++);
  graphs_[*graph] = std::make_unique<Recording>(*found->second);
  return fault_;
}

cudaError_t EmulatedCuda::Upload(cudaGraphExec_t graph, cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  if (StateOf(stream).recording != nullptr) return cudaErrorStreamCaptureUnsupported;
  const auto found = graphs_.find(graph);
  if (found == graphs_.end()) return cudaErrorInvalidValue;
  const int64_t bytes = kBytesOfGraphNode * std::ssize(*found->second);
  if (bytes > machine.bytes - used_bytes_) return cudaErrorMemoryAllocation;
  return fault_;
}

cudaError_t EmulatedCuda::Launch(cudaGraphExec_t graph, cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  StreamState& state = StateOf(stream);
  if (state.recording != nullptr) return cudaErrorStreamCaptureUnsupported;
  const auto found = graphs_.find(graph);
  if (found == graphs_.end()) return cudaErrorInvalidValue;
  for (Work work : *found->second) {
    work.graph = graph;
    Put(state, std::move(work));
  }
  Advance();
  return fault_;
}

cudaError_t EmulatedCuda::Destroy(cudaGraph_t recorded) {
  const std::lock_guard lock(mutex_);
  return recordings_.erase(recorded) == 1 ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t EmulatedCuda::Destroy(cudaGraphExec_t graph) {
  const std::lock_guard lock(mutex_);
  for (const auto& [handle, stream] : streams_) {
    for (const Work& work : stream->pending) HADAL_CHECK(work.graph != graph);
  }
  return graphs_.erase(graph) == 1 ? fault_ : cudaErrorInvalidValue;
}

}  // namespace hadal::testing
