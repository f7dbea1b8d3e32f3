// The CUDA runtime's functions over EmulatedCuda: arguments, versions, and the last error of each thread.
#include <cuda_runtime_api.h>

#include <cstring>

#include "runtime/check.h"
#include "tests/support/emulated_cuda.h"

namespace {

using hadal::testing::EmulatedCuda;

EmulatedCuda& Cuda() { return EmulatedCuda::Instance(); }

// What a function returns, which is also the last error where it is one.
cudaError_t Return(cudaError_t error) {
  if (error != cudaSuccess) EmulatedCuda::LastError() = error;
  return error;
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
  return Return(cudaSuccess);
}

cudaError_t cudaGetDeviceCount(int* count) {
  if (Cuda().machine.driver / 1000 < CUDART_VERSION / 1000) return Return(cudaErrorInsufficientDriver);
  *count = Cuda().machine.devices;
  return Return(*count == 0 ? cudaErrorNoDevice : cudaSuccess);
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= Cuda().machine.devices) return Return(cudaErrorInvalidDevice);
  EmulatedCuda::CurrentDevice() = device;
  return Return(cudaSuccess);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  *properties = {};
  std::strcpy(properties->name, "Emulated GPU");
  properties->major = Cuda().machine.major;
  properties->totalGlobalMem = static_cast<size_t>(Cuda().machine.bytes);
  properties->pciBusID = 0x10 + device;
  for (char& byte : properties->uuid.bytes) byte = static_cast<char>(device + 1);
  return Return(cudaSuccess);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return Return(cudaSuccess);
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = static_cast<size_t>(Cuda().FreeBytes());
  *total = static_cast<size_t>(Cuda().machine.bytes);
  return Return(Cuda().Fault());
}

cudaError_t cudaMalloc(void** memory, size_t bytes) { return Return(Cuda().Allocate(memory, bytes)); }
cudaError_t cudaFree(void* memory) { return Return(Cuda().Free(memory)); }
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned int flags) {
  return Return(Cuda().AllocateHost(memory, bytes));
}
cudaError_t cudaFreeHost(void* memory) { return Return(Cuda().FreeHost(memory)); }
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return Return(Cuda().Copy(to, from, bytes, kind, stream));
}
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  return Return(Cuda().Clear(memory, value, bytes, stream));
}

// A stream that waits for the legacy one would be slower, and is not emulated.
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  HADAL_CHECK_EQ(flags, unsigned{cudaStreamNonBlocking});
  return Return(Cuda().MakeStream(stream));
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  HADAL_CHECK_EQ(flags, unsigned{cudaStreamNonBlocking});
  HADAL_CHECK_GE(priority, -5);
  HADAL_CHECK_LE(priority, 0);
  return Return(Cuda().MakeStream(stream));
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return Return(Cuda().DestroyStream(stream)); }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return Return(Cuda().Synchronize(stream)); }
cudaError_t cudaStreamQuery(cudaStream_t stream) { return Return(Cuda().Query(stream)); }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  HADAL_CHECK_EQ(flags, 0u);
  return Return(Cuda().AwaitEvent(stream, event));
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return Return(Cuda().CallHost(stream, function, data));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  const bool timed = (flags & cudaEventDisableTiming) == 0;
  return Return(Cuda().MakeEvent(event, timed));
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return Return(Cuda().DestroyEvent(event)); }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return Return(Cuda().RecordEvent(event, stream));
}
cudaError_t cudaEventQuery(cudaEvent_t event) { return Return(Cuda().QueryEvent(event)); }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t first, cudaEvent_t second) {
  return Return(Cuda().Elapsed(milliseconds, first, second));
}

// Other modes let other threads' calls spoil the recording, or this thread's pass unseen.
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  HADAL_CHECK_EQ(mode, cudaStreamCaptureModeThreadLocal);
  return Return(Cuda().BeginCapture(stream));
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return Return(Cuda().EndCapture(stream, graph));
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* graph, cudaGraph_t recorded, unsigned long long flags) {
  HADAL_CHECK_EQ(flags, 0u);
  return Return(Cuda().Instantiate(graph, recorded));
}
cudaError_t cudaGraphUpload(cudaGraphExec_t graph, cudaStream_t stream) { return Return(Cuda().Upload(graph, stream)); }
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) { return Return(Cuda().Launch(graph, stream)); }
cudaError_t cudaGraphDestroy(cudaGraph_t recorded) { return Return(Cuda().Destroy(recorded)); }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) { return Return(Cuda().Destroy(graph)); }
