#include "kernels/cuda_host/cuda_device.h"

#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>

#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/cuda_host/cublas_library.h"
#include "kernels/cuda_host/cublas_matmul.h"
#include "kernels/cuda_host/cuda_check.h"
#include "kernels/cuda_host/launch_device.h"
#include "kernels/cuda_host/operations.h"
#include "runtime/check.h"
#include "runtime/profiler.h"
#include "runtime/status_macros.h"

namespace hadal::cuda {
namespace {

constexpr int kOldestMajor = 8;  // sm_80

absl::Status Unavailable(const char* what, cudaError_t error) {
  return UnavailableError(what, ": ", cudaGetErrorString(error));
}

class CudaGraph : public DeviceGraph {
 public:
  explicit CudaGraph(cudaGraphExec_t graph) : graph_(graph) {}
  ~CudaGraph() override { Check(cudaGraphExecDestroy(graph_), "destroying a graph"); }

  cudaGraphExec_t graph() const { return graph_; }
  // Returns whether it has been launched before, and marks it as launched.
  bool BeginLaunch() { return std::exchange(launched_, true); }

 private:
  const cudaGraphExec_t graph_;
  bool launched_ = false;
};

// Ranges that Nsight Systems and other NVIDIA tools show with the kernels.
class NvtxProfiler : public Profiler {
 public:
  explicit NvtxProfiler(nvtxDomainHandle_t domain) : domain_(domain) {}
  ~NvtxProfiler() override { nvtxDomainDestroy(domain_); }

  void Begin(const char* text) override {
    nvtxEventAttributes_t event = {};
    event.version = NVTX_VERSION;
    event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    event.messageType = NVTX_MESSAGE_TYPE_ASCII;
    event.message.ascii = text;
    nvtxDomainRangePushEx(domain_, &event);
  }
  void End() override { nvtxDomainRangePop(domain_); }

 private:
  const nvtxDomainHandle_t domain_;
};

std::unique_ptr<Profiler> MakeNvtxProfiler() {
  const nvtxDomainHandle_t domain = nvtxDomainCreateA("hadal");  // null if no tool is attached
  return domain == nullptr ? nullptr : std::make_unique<NvtxProfiler>(domain);
}

class CudaDevice : public LaunchDevice {
 public:
  static absl::StatusOr<std::unique_ptr<Device>> Open(const CudaDeviceOptions& options);
  ~CudaDevice() override;

  std::string Name() const override { return name_; }
  std::string Identity() const override { return identity_; }
  int64_t FreeBytes() const override;
  const DeviceKernels& kernels() const override { return Operations(); }
  absl::StatusOr<std::byte*> Allocate(int64_t bytes) override;
  void Free(std::byte* memory) override;
  absl::StatusOr<std::byte*> AllocateHost(int64_t bytes) override;
  void FreeHost(std::byte* memory) override;
  void CopyIn(void* to, const void* from_host, int64_t bytes) override;
  void EnqueueCopyIn(void* to, const void* from_host, int64_t bytes) override;
  void CopyOut(void* to_host, const void* from, int64_t bytes) override;
  void EnqueueCopyOut(DeviceQueues::Queue queue, void* to_host, const void* from, int64_t bytes) override;
  void CopyWithin(void* to, const void* from, int64_t bytes) override;
  void Clear(void* memory, int64_t bytes) override;
  void Synchronize() override;
  DeviceQueues& queues() override { return *queues_; }
  bool Idle() override;
  void BeginCapture() override;
  bool capturing() const override { return capturing_; }
  absl::StatusOr<std::unique_ptr<DeviceGraph>> EndCapture() override;
  void Launch(DeviceGraph& graph) override;
  int64_t launches() const override { return launches_; }
  Profiler* profiler() override { return profiler_.get(); }

  StreamHandle HandleOf(DeviceQueues::Queue queue) override;
  absl::StatusOr<DeviceQueues::Queue> MakeKernelQueue() override;
  Matmul& matmul() override {
    watch_.BeforeCall();
    return *matmul_;
  }
  LaunchMemory& launch_memory() override { return *launch_memory_; }

 private:
  explicit CudaDevice(const DeviceWatch::Options& watch) : watch_(watch) {}
  // Waits for the main queue. Any thread.
  void AwaitMain(const char* what);
  // Does short and long copies of each kind once, so that the driver's set-up for its first copies (it stages memory
  // that is not pinned) is done before transfers.
  void CopyOnce();

  mutable DeviceWatch watch_;
  int index_ = 0;
  std::string name_, identity_;
  cudaStream_t stream_ = nullptr;
  DeviceQueues::Queue kernel_queue_ = nullptr;  // the last of MakeKernelQueue
  std::byte* workspace_ = nullptr;              // for products
  bool capturing_ = false;
  std::optional<DeviceWatch::Wait> polled_;  // since Idle found work that has not been waited for
  int64_t launches_ = 0, launches_before_capture_ = 0;
  std::unique_ptr<Matmul> matmul_;
  std::optional<LaunchMemory> launch_memory_;
  std::unique_ptr<DeviceQueues> queues_;
  const std::unique_ptr<Profiler> profiler_ = MakeNvtxProfiler();
};

// Returns the driver's identifier of a GPU, or of a part of one.
std::string IdentityOf(const cudaDeviceProp& properties) {
  return absl::StrCat("GPU-",
                      absl::BytesToHexString(absl::string_view(properties.uuid.bytes, sizeof(properties.uuid.bytes))));
}

// 13020 → "13.2"
std::string VersionText(int version) { return absl::StrCat(version / 1000, ".", version % 1000 / 10); }

std::string NameOf(const cudaDeviceProp& properties) {
  int driver = 0;
  Check(cudaDriverGetVersion(&driver), "the driver's version");
  return absl::StrCat(properties.name, ", sm_", properties.major, properties.minor, ", driver for CUDA ",
                      VersionText(driver));
}

// Returns the number of the GPU to open, among those visible to the process.
absl::StatusOr<int> ChooseDevice(const CudaDeviceOptions& options) {
  int driver = 0, devices = 0;
  if (const cudaError_t error = cudaDriverGetVersion(&driver); error != cudaSuccess) {
    return Unavailable("no usable NVIDIA driver", error);
  }
  if (driver == 0) return NotFoundError("no NVIDIA driver");
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess) cudaGetLastError();  // clears the error for the next launch
  if (error == cudaErrorNoDevice || (error == cudaSuccess && devices == 0)) {
    return UnavailableError("no GPU is visible (CUDA_VISIBLE_DEVICES?)");
  }
  if (error == cudaErrorInsufficientDriver) {
    return UnavailableError("the driver is for CUDA ", VersionText(driver), ", older than this program's ",
                            VersionText(CUDART_VERSION), ": update it, or build with an older CUDA");
  }
  if (error != cudaSuccess) return Unavailable("no usable GPU", error);
  return ChooseVisibleDevice(options.local_rank, devices);
}

absl::StatusOr<std::unique_ptr<Device>> CudaDevice::Open(const CudaDeviceOptions& options) {
  std::unique_ptr<CudaDevice> device(new CudaDevice(options.watch));
  const DeviceWatch::Wait wait(device->watch_, "opening the device");
  HADAL_ASSIGN_OR_RETURN(const int index, ChooseDevice(options));
  device->index_ = index;
  if (const cudaError_t error = cudaSetDevice(index); error != cudaSuccess) return Unavailable("no GPU", error);
  cudaDeviceProp properties;
  Check(cudaGetDeviceProperties(&properties, index), "its properties");
  device->name_ = NameOf(properties);
  device->identity_ = IdentityOf(properties);
  if (properties.major < kOldestMajor) {
    return UnavailableError(device->name_, " is too old: the kernels are for sm_80 and later");
  }
  HADAL_ASSIGN_OR_RETURN(const DeviceQueues::Queue main, device->MakeKernelQueue());
  device->stream_ = static_cast<cudaStream_t>(main);
  device->queues_ =
      MakeCudaQueues(index, device->stream_, device->watch_, [opened = device.get()] { opened->Standstill(); });
  HADAL_ASSIGN_OR_RETURN(device->workspace_, device->Allocate(kMatmulWorkspaceBytes));
  HADAL_ASSIGN_OR_RETURN(device->matmul_, MakeCublasMatmul(device->handle(), device->workspace_, properties.major,
                                                           options.tf32, options.weight_gradient_batch));
  HADAL_ASSIGN_OR_RETURN(LaunchMemory memory, LaunchMemory::Create(*device));
  device->launch_memory_.emplace(std::move(memory));
  device->CopyOnce();
  return device;
}

void CudaDevice::CopyOnce() {
  constexpr int64_t kLong = 1 << 20, kShort = 64;
  static_assert(2 * kLong <= kMatmulWorkspaceBytes);
  std::vector<std::byte> host(kLong);
  for (const int64_t bytes : {kShort, kLong}) {
    CopyIn(workspace_, host.data(), bytes);
    CopyWithin(workspace_ + kLong, workspace_, bytes);
    CopyOut(host.data(), workspace_ + kLong, bytes);
  }
}

CudaDevice::~CudaDevice() {
  polled_.reset();
  const DeviceWatch::Wait wait(watch_, "closing the device");
  if (stream_ != nullptr) Synchronize();
  launch_memory_.reset();
  matmul_.reset();
  if (workspace_ != nullptr) Free(workspace_);
  if (stream_ != nullptr) Check(cudaStreamDestroy(stream_), "destroying the stream");
}

StreamHandle CudaDevice::HandleOf(DeviceQueues::Queue queue) {
  watch_.BeforeCall();
  HADAL_CHECK(!capturing() || queue == DeviceQueues::kMain || queue == kernel_queue_);
  return {queue == DeviceQueues::kMain ? stream_ : static_cast<cudaStream_t>(queue), &launches_, &first_launches()};
}

absl::StatusOr<DeviceQueues::Queue> CudaDevice::MakeKernelQueue() {
  Standstill();
  const DeviceWatch::Wait wait(watch_, "making a queue");
  cudaStream_t stream = nullptr;
  const cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (error != cudaSuccess) return Unavailable("no CUDA stream", error);
  return kernel_queue_ = stream;
}

int64_t CudaDevice::FreeBytes() const {
  Standstill();
  const DeviceWatch::Wait wait(watch_, "asking for the free memory");
  size_t free = 0, total = 0;
  Check(cudaMemGetInfo(&free, &total), "its memory");
  return static_cast<int64_t>(free);
}

absl::StatusOr<std::byte*> CudaDevice::Allocate(int64_t bytes) {
  Standstill();
  const DeviceWatch::Wait wait(watch_, "allocating memory");
  void* memory = nullptr;
  if (const cudaError_t error = cudaMalloc(&memory, static_cast<size_t>(bytes)); error != cudaSuccess) {
    cudaGetLastError();  // clears the error for the next launch
    return ResourceExhaustedError(cudaGetErrorString(error));
  }
  Clear(memory, bytes);
  Synchronize();
  return static_cast<std::byte*>(memory);
}

void CudaDevice::Free(std::byte* memory) {
  Standstill();
  const DeviceWatch::Wait wait(watch_, "freeing memory");
  Synchronize();
  Check(cudaFree(memory), "freeing memory");
}

absl::StatusOr<std::byte*> CudaDevice::AllocateHost(int64_t bytes) {
  Standstill();
  const DeviceWatch::Wait wait(watch_, "allocating pinned memory");
  void* memory = nullptr;
  if (const cudaError_t error = cudaHostAlloc(&memory, static_cast<size_t>(bytes), cudaHostAllocPortable);
      error != cudaSuccess) {
    cudaGetLastError();
    return ResourceExhaustedError(cudaGetErrorString(error));
  }
  std::memset(memory, 0, static_cast<size_t>(bytes));
  return static_cast<std::byte*>(memory);
}

void CudaDevice::FreeHost(std::byte* memory) {
  Standstill();
  const DeviceWatch::Wait wait(watch_, "freeing pinned memory");
  Check(cudaFreeHost(memory), "freeing pinned memory");
}

void CudaDevice::CopyIn(void* to, const void* from_host, int64_t bytes) {
  EnqueueCopyIn(to, from_host, bytes);
  AwaitMain("a copy to the device");
}

void CudaDevice::EnqueueCopyIn(void* to, const void* from_host, int64_t bytes) {
  HADAL_CHECK(!capturing());
  watch_.BeforeCall();
  Check(cudaMemcpyAsync(to, from_host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream_), "a copy to it");
}

void CudaDevice::CopyOut(void* to_host, const void* from, int64_t bytes) {
  const DeviceWatch::Wait wait(watch_, "a copy to the host");
  EnqueueCopyOut(DeviceQueues::kMain, to_host, from, bytes);
  AwaitMain("a copy to the host");
}

// Another thread's copies do not disturb a capture, which is for the capturing thread only (BeginCapture).
void CudaDevice::EnqueueCopyOut(DeviceQueues::Queue queue, void* to_host, const void* from, int64_t bytes) {
  if (queue == DeviceQueues::kMain) HADAL_CHECK(!capturing());
  watch_.BeforeCall();
  Check(cudaSetDevice(index_), "choosing it");  // the thread may not have used this device yet
  cudaStream_t const stream = queue == DeviceQueues::kMain ? stream_ : static_cast<cudaStream_t>(queue);
  Check(cudaMemcpyAsync(to_host, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream), "a copy from it");
}

void CudaDevice::CopyWithin(void* to, const void* from, int64_t bytes) {
  ++launches_;
  watch_.BeforeCall();
  Check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream_), "a copy within it");
}

void CudaDevice::Clear(void* memory, int64_t bytes) {
  ++launches_;
  watch_.BeforeCall();
  Check(cudaMemsetAsync(memory, 0, static_cast<size_t>(bytes), stream_), "clearing memory");
}

void CudaDevice::AwaitMain(const char* what) {
  HADAL_CHECK(!capturing());
  const DeviceWatch::Wait wait(watch_, what);
  Check(cudaStreamSynchronize(stream_), "kernels");
}

void CudaDevice::Synchronize() {
  AwaitMain("kernels");
  polled_.reset();
}

bool CudaDevice::Idle() {
  HADAL_CHECK(!capturing());
  const cudaError_t state = cudaStreamQuery(stream_);
  if (state == cudaErrorNotReady) {
    cudaGetLastError();  // clears the error for the next launch
    if (!polled_.has_value()) polled_.emplace(watch_, "kernels");
    return false;
  }
  Check(state, "kernels");
  polled_.reset();
  return true;
}

// For this thread only: others may allocate and copy meanwhile.
void CudaDevice::BeginCapture() {
  Standstill();
  watch_.BeforeCall();
  HADAL_CHECK(!std::exchange(capturing_, true));
  launches_before_capture_ = launches_;
  Check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "beginning a graph");
}

absl::StatusOr<std::unique_ptr<DeviceGraph>> CudaDevice::EndCapture() {
  const DeviceWatch::Wait wait(watch_, "making a graph");
  cudaGraph_t recorded = nullptr;
  Check(cudaStreamEndCapture(stream_, &recorded), "recording a graph");
  HADAL_CHECK(std::exchange(capturing_, false));
  launches_ = launches_before_capture_;
  cudaGraphExec_t graph = nullptr;
  cudaError_t error = cudaGraphInstantiate(&graph, recorded, 0);
  // allocates the graph's memory now, not at its first launch
  if (error == cudaSuccess) error = cudaGraphUpload(graph, stream_);
  Check(cudaGraphDestroy(recorded), "destroying a recording");
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    if (graph != nullptr) Check(cudaGraphExecDestroy(graph), "destroying a graph");
    return ResourceExhaustedError(cudaGetErrorString(error));
  }
  Check(error, "making a graph");
  return std::make_unique<CudaGraph>(graph);
}

void CudaDevice::Launch(DeviceGraph& graph) {
  ++launches_;
  watch_.BeforeCall();
  auto& recorded = static_cast<CudaGraph&>(graph);
  if (!recorded.BeginLaunch()) Standstill();
  Check(cudaGraphLaunch(recorded.graph(), stream_), "launching a graph");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(const CudaDeviceOptions& options) {
  return CudaDevice::Open(options);
}

absl::StatusOr<CudaFacts> LookAtCudaDevice(const CudaDeviceOptions& options) {
  HADAL_ASSIGN_OR_RETURN(const int index, ChooseDevice(options));
  if (const cudaError_t error = cudaSetDevice(index); error != cudaSuccess) return Unavailable("no GPU", error);
  cudaDeviceProp properties;
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, index); error != cudaSuccess) {
    return Unavailable("a GPU without properties", error);
  }
  CudaFacts facts{
      .model = properties.name,
      .architecture = absl::StrCat("sm_", properties.major, properties.minor),
      .bus = absl::StrFormat("%04x:%02x:%02x.0", properties.pciDomainID, properties.pciBusID, properties.pciDeviceID),
      .identity = IdentityOf(properties),
      .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem),
      .runtime = CUDART_VERSION};
  Check(cudaDriverGetVersion(&facts.driver), "the driver's version");
  size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) == cudaSuccess) facts.free_bytes = static_cast<int64_t>(free);
  cudaGetLastError();  // clears the error for the next launch
  if (const absl::StatusOr<CublasLibrary> products = LoadCublasLibrary(); products.ok()) {
    facts.cublas = static_cast<int>(products->version());
  }
  return facts;
}

}  // namespace hadal::cuda
