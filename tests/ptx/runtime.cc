// The CUDA runtime that nvcc's host code calls, over the interpreter: a launch runs its kernel's PTX at once. Also the
// kernel device of the tests. A Fault becomes a C++ exception of the test, which GoogleTest reports.
// The PTX is that of the file HADAL_PTX names, without it that of the build.
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/ptx/machine.h"
#include "tests/support/kernel_device.h"

namespace hadal::ptx {

Machine& Machine::Get() {
  static Machine machine;
  return machine;
}

Program& Machine::program() {
  if (program_ == nullptr) {
    const char* named = std::getenv("HADAL_PTX");
    std::ostringstream text;
    text << std::ifstream(named != nullptr ? named : HADAL_PTX_FILE).rdbuf();
    program_ = std::make_unique<Program>(text.str());
  }
  return *program_;
}

void Machine::Run(const void* function, const Grid& grid, void** arguments) {
  const Kernel& kernel = program().Find(names_.at(function));
  Region parameters(0, kernel.parameter_bytes);
  for (size_t i = 0; i < kernel.parameters.size(); ++i) {
    parameters.Write(kernel.parameters[i].first, arguments[i], kernel.parameters[i].second);
  }
  steps_ += Launch(kernel, grid, parameters, global_, clock_);
}

}  // namespace hadal::ptx

using hadal::ptx::Machine;

extern "C" {

void** __cudaRegisterFatBinary(void* binary) { return reinterpret_cast<void**>(binary); }
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  Machine::Get().Name(function, name);
}

static struct {
  dim3 blocks, threads;
  size_t shared_bytes;
  cudaStream_t stream;
} pushed;  // by one thread, between the <<<>>> and the stub that launches

unsigned __cudaPushCallConfiguration(dim3 blocks, dim3 threads, size_t shared_bytes, cudaStream_t stream) {
  pushed = {blocks, threads, shared_bytes, stream};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* blocks, dim3* threads, size_t* shared_bytes, void* stream) {
  *blocks = pushed.blocks;
  *threads = pushed.threads;
  *shared_bytes = pushed.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = pushed.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 blocks, dim3 threads, void** arguments, size_t, cudaStream_t) {
  Machine::Get().Run(kernel, {.blocks_x = blocks.x, .blocks_y = blocks.y, .threads = static_cast<int>(threads.x)},
                     arguments);
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t) { return "?"; }
const char* cudaGetErrorString(cudaError_t) { return "?"; }
cudaError_t cudaFuncGetName(const char**, const void*) { return cudaErrorInvalidValue; }

}  // extern "C"

namespace hadal::testing {

struct KernelDevice::State {
  std::vector<uint64_t> allocations;
};

KernelDevice::KernelDevice(uint64_t /*seed*/) : state_(std::make_unique<State>()) {}
KernelDevice::~KernelDevice() {
  for (const uint64_t start : state_->allocations) Machine::Get().global().Free(start);
}
cuda::StreamHandle KernelDevice::stream() { return nullptr; }
void* KernelDevice::Allocate(int64_t bytes) {
  state_->allocations.push_back(Machine::Get().global().Allocate(bytes));
  return reinterpret_cast<void*>(state_->allocations.back());
}
void KernelDevice::Write(void* to, const void* from, int64_t bytes) {
  const auto address = reinterpret_cast<uint64_t>(to);
  if (bytes > 0) Machine::Get().global().Find(address).Write(address, from, bytes);
}
void KernelDevice::Read(void* to, const void* from, int64_t bytes) {
  const auto address = reinterpret_cast<uint64_t>(from);
  if (bytes > 0) Machine::Get().global().Find(address).Read(to, address, bytes);
}

}  // namespace hadal::testing
