// The CUDA runtime's functions over EmulatedCuda: arguments, versions, and the last error of each thread.
#include <cuda_runtime_api.h>

#include <cstring>

#include "runtime/check.h"
#include "tests/support/api_recording.h"
#include "tests/support/emulated_cuda.h"

namespace {

using hadal::testing::ApiRecording;
using hadal::testing::EmulatedCuda;

EmulatedCuda& Cuda() { return EmulatedCuda::Instance(); }

// What a function returns, which is also the last error where it is one.
cudaError_t Return(cudaError_t error) {
  if (error != cudaSuccess) EmulatedCuda::LastError() = error;
  return error;
}

// The recording of this thread's calls, if this one belongs to it.
ApiRecording* Recorded(cudaError_t error) {
  return error == cudaSuccess || error == cudaErrorNotReady ? ApiRecording::OfThisThread() : nullptr;
}
template <typename... Arguments>
cudaError_t Return(cudaError_t error, const char* function, const Arguments&... arguments) {
  if (ApiRecording* const calls = Recorded(error)) calls->Note(function, {arguments...});
  return Return(error);
}
template <typename Made, typename... Arguments>
cudaError_t ReturnMade(cudaError_t error, const char* function, const Made* made, const Arguments&... arguments) {
  if (ApiRecording* const calls = Recorded(error)) calls->NoteMaking(function, *made, {arguments...});
  return Return(error);
}
template <typename... Arguments>
cudaError_t ReturnAllocated(cudaError_t error, const char* function, char kind, void* const* memory, size_t bytes,
                            const Arguments&... arguments) {
  if (ApiRecording* const calls = Recorded(error)) {
    calls->NoteAllocation(function, kind, *memory, static_cast<int64_t>(bytes), {arguments...});
  }
  return Return(error);
}
template <typename Ended>
cudaError_t ReturnEnd(cudaError_t error, const char* function, Ended ended) {
  if (ApiRecording* const calls = Recorded(error)) calls->NoteEnd(function, ended);
  return Return(error);
}

}  // namespace

cudaError_t cudaGetLastError() {
  const cudaError_t last = EmulatedCuda::LastError();
  EmulatedCuda::LastError() = Cuda().Fault();  // a fault stays
  return last;
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    default:
      return "another error of the emulated runtime";
  }
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = Cuda().machine.driver;
  return Return(cudaSuccess, "cudaDriverGetVersion");
}

cudaError_t cudaGetDeviceCount(int* count) {
  if (Cuda().machine.driver / 1000 < CUDART_VERSION / 1000) return Return(cudaErrorInsufficientDriver);
  *count = Cuda().machine.devices;
  return Return(*count == 0 ? cudaErrorNoDevice : cudaSuccess, "cudaGetDeviceCount");
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= Cuda().machine.devices) return Return(cudaErrorInvalidDevice);
  EmulatedCuda::CurrentDevice() = device;
  return Return(cudaSuccess, "cudaSetDevice", device);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  *properties = {};
  std::strcpy(properties->name, "Emulated GPU");
  properties->major = Cuda().machine.major;
  properties->totalGlobalMem = static_cast<size_t>(Cuda().machine.bytes);
  properties->pciBusID = 0x10 + device;
  for (char& byte : properties->uuid.bytes) byte = static_cast<char>(device + 1);
  return Return(cudaSuccess, "cudaGetDeviceProperties", device);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return Return(cudaSuccess, "cudaDeviceGetStreamPriorityRange");
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = static_cast<size_t>(Cuda().FreeBytes());
  *total = static_cast<size_t>(Cuda().machine.bytes);
  return Return(Cuda().Fault(), "cudaMemGetInfo");
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  return ReturnAllocated(Cuda().Allocate(memory, bytes), "cudaMalloc", 'd', memory, bytes);
}
cudaError_t cudaFree(void* memory) { return ReturnEnd(Cuda().Free(memory), "cudaFree", memory); }
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned int flags) {
  return ReturnAllocated(Cuda().AllocateHost(memory, bytes), "cudaHostAlloc", 'p', memory, bytes, flags);
}
cudaError_t cudaFreeHost(void* memory) { return ReturnEnd(Cuda().FreeHost(memory), "cudaFreeHost", memory); }
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return Return(Cuda().Copy(to, from, bytes, kind, stream), "cudaMemcpyAsync", to, from, bytes, int{kind}, stream);
}
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  return Return(Cuda().Clear(memory, value, bytes, stream), "cudaMemsetAsync", memory, value, bytes, stream);
}

// A stream that waits for the legacy one would be slower, and is not emulated.
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  HADAL_CHECK_EQ(flags, unsigned{cudaStreamNonBlocking});
  return ReturnMade(Cuda().MakeStream(stream), "cudaStreamCreateWithFlags", stream, flags);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  HADAL_CHECK_EQ(flags, unsigned{cudaStreamNonBlocking});
  HADAL_CHECK_GE(priority, -5);
  HADAL_CHECK_LE(priority, 0);
  return ReturnMade(Cuda().MakeStream(stream), "cudaStreamCreateWithPriority", stream, flags, priority);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return ReturnEnd(Cuda().DestroyStream(stream), "cudaStreamDestroy", stream);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return Return(Cuda().Synchronize(stream), "cudaStreamSynchronize", stream);
}
cudaError_t cudaStreamQuery(cudaStream_t stream) { return Return(Cuda().Query(stream), "cudaStreamQuery", stream); }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  HADAL_CHECK_EQ(flags, 0u);
  return Return(Cuda().AwaitEvent(stream, event), "cudaStreamWaitEvent", stream, event, flags);
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return Return(Cuda().CallHost(stream, function, data));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  const bool timed = (flags & cudaEventDisableTiming) == 0;
  return ReturnMade(Cuda().MakeEvent(event, timed), "cudaEventCreateWithFlags", event, flags);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return ReturnEnd(Cuda().DestroyEvent(event), "cudaEventDestroy", event);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return Return(Cuda().RecordEvent(event, stream), "cudaEventRecord", event, stream);
}
cudaError_t cudaEventQuery(cudaEvent_t event) { return Return(Cuda().QueryEvent(event), "cudaEventQuery", event); }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t first, cudaEvent_t second) {
  return Return(Cuda().Elapsed(milliseconds, first, second), "cudaEventElapsedTime", first, second);
}

// Other modes let other threads' calls spoil the recording, or this thread's pass unseen.
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  HADAL_CHECK_EQ(mode, cudaStreamCaptureModeThreadLocal);
  return Return(Cuda().BeginCapture(stream), "cudaStreamBeginCapture", stream, int{mode});
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return ReturnMade(Cuda().EndCapture(stream, graph), "cudaStreamEndCapture", graph, stream);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* graph, cudaGraph_t recorded, unsigned long long flags) {
  HADAL_CHECK_EQ(flags, 0u);
  return ReturnMade(Cuda().Instantiate(graph, recorded), "cudaGraphInstantiate", graph, recorded, flags);
}
cudaError_t cudaGraphUpload(cudaGraphExec_t graph, cudaStream_t stream) {
  return Return(Cuda().Upload(graph, stream), "cudaGraphUpload", graph, stream);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  return Return(Cuda().Launch(graph, stream), "cudaGraphLaunch", graph, stream);
}
cudaError_t cudaGraphDestroy(cudaGraph_t recorded) {
  return ReturnEnd(Cuda().Destroy(recorded), "cudaGraphDestroy", recorded);
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  return ReturnEnd(Cuda().Destroy(graph), "cudaGraphExecDestroy", graph);
}
