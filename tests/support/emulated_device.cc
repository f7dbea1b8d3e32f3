#include "tests/support/emulated_device.h"

#include <sys/mman.h>

#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/device/operations.h"
#include "kernels/device/own_memory.h"
#include "runtime/check.h"
#include "runtime/crc32c.h"

namespace hadal::testing {

// While it lives the host may touch the device's memory.
struct EmulatedDevice::OpenMemory {
  explicit OpenMemory(EmulatedDevice& d) : device(d) { device.Open(); }
  ~OpenMemory() { device.Close(); }
  EmulatedDevice& device;
};

class EmulatedDevice::Loops : public cuda::Matmul {
 public:
  explicit Loops(EmulatedDevice& device) : device_(device) {}

  void Multiply(const cuda::MatmulArgs& args) override {
    HADAL_CHECK(args.m >= 1 && args.n >= 1 && args.k >= 1);
    HADAL_CHECK(!(args.bias || args.relu) || !args.accumulate);
    CheckMatrix(args.a, args.a_transposed ? args.k : args.m, args.a_transposed ? args.m : args.k);
    CheckMatrix(args.b, args.b_transposed ? args.n : args.k, args.b_transposed ? args.k : args.n);
    CheckMatrix(cuda::DeviceMatrix<const float>(args.c), args.m, args.n);
    if (args.bias) HADAL_CHECK(device_.Owns(args.bias.address, args.n * int64_t{sizeof(float)}));
    const OpenMemory open(device_);
    for (int64_t i = 0; i < args.m; ++i) {
      for (int64_t j = 0; j < args.n; ++j) Element(args, i, j);
    }
  }

 private:
  void CheckMatrix(const cuda::DeviceMatrix<const float>& m, int64_t rows, int64_t columns) const {
    HADAL_CHECK_GE(m.stride, columns);
    HADAL_CHECK(device_.Owns(m.data.address, ((rows - 1) * m.stride + columns) * int64_t{sizeof(float)}));
  }

  static void Element(const cuda::MatmulArgs& args, int64_t i, int64_t j) {
    float sum = 0.0f;
    for (int64_t k = 0; k < args.k; ++k) {
      const float a = (args.a_transposed ? args.a.row(k) + i : args.a.row(i) + k).address[0];
      const float b = (args.b_transposed ? args.b.row(j) + k : args.b.row(k) + j).address[0];
      sum = std::fma(a, b, sum);
    }
    float& c = (args.c.row(i) + j).address[0];
    if (args.accumulate) sum += c;
    if (args.bias) sum += (args.bias + j).address[0];
    c = args.relu && sum < 0.0f ? 0.0f : sum;
  }

  EmulatedDevice& device_;
};

EmulatedDevice::EmulatedDevice(uint64_t seed, int64_t most_bytes)
    : executor_(seed), most_bytes_(most_bytes), matmul_(std::make_unique<Loops>(*this)) {
  executor_.AroundLaunches([this] { Open(); }, [this] { Close(); });
  absl::StatusOr<cuda::LaunchMemory> memory = cuda::LaunchMemory::Create(*this);
  HADAL_CHECK(memory.ok());
  launch_memory_.emplace(*std::move(memory));
  absl::StatusOr<std::byte*> workspace = Allocate(cuda::OwnMemory::kWorkspaceBytes);
  HADAL_CHECK(workspace.ok());
  workspace_ = *workspace;
}

EmulatedDevice::~EmulatedDevice() {
  launch_memory_.reset();
  Free(workspace_);
  HADAL_CHECK(allocations_.empty() && host_allocations_.empty());  // a leak
}

int64_t EmulatedDevice::used_host_bytes() const {
  int64_t bytes = 0;
  for (const auto& [memory, size] : host_allocations_) bytes += size;
  return bytes;
}

const DeviceKernels& EmulatedDevice::kernels() const { return cuda::Operations(); }
cuda::Matmul& EmulatedDevice::matmul() { return *matmul_; }

absl::StatusOr<std::byte*> EmulatedDevice::Allocate(int64_t bytes) {
  HADAL_CHECK_GE(bytes, 1);
  if (bytes > FreeBytes()) return absl::ResourceExhaustedError(absl::StrCat("only ", FreeBytes(), " bytes are free"));
  const std::lock_guard lock(mutex_);
  void* memory =
      mmap(nullptr, bytes, opened_ > 0 ? PROT_READ | PROT_WRITE : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  HADAL_CHECK(memory != MAP_FAILED);
  allocations_[static_cast<std::byte*>(memory)] = bytes;
  used_bytes_ += bytes;
  executor_.Register(memory, bytes);
  return static_cast<std::byte*>(memory);
}

void EmulatedDevice::Free(std::byte* memory) {
  const std::lock_guard lock(mutex_);
  const auto found = allocations_.find(memory);
  HADAL_CHECK(found != allocations_.end());
  executor_.Unregister(memory);
  munmap(memory, found->second);
  used_bytes_ -= found->second;
  allocations_.erase(found);
}

absl::StatusOr<std::byte*> EmulatedDevice::AllocateHost(int64_t bytes) {
  std::byte* memory = new std::byte[bytes]();
  host_allocations_[memory] = bytes;
  return memory;
}

void EmulatedDevice::FreeHost(std::byte* memory) {
  HADAL_CHECK_EQ(host_allocations_.erase(memory), 1u);
  delete[] memory;
}

void EmulatedDevice::Protect(int protection) {
  for (const auto& [memory, bytes] : allocations_) HADAL_CHECK_EQ(mprotect(memory, bytes, protection), 0);
}

void EmulatedDevice::Open() {
  const std::lock_guard lock(mutex_);
  if (opened_++ == 0) Protect(PROT_READ | PROT_WRITE);
}

void EmulatedDevice::Close() {
  const std::lock_guard lock(mutex_);
  if (--opened_ == 0) Protect(PROT_NONE);
}

bool EmulatedDevice::Owns(const void* memory, int64_t bytes) const {
  const std::lock_guard lock(mutex_);
  auto* const start = static_cast<std::byte*>(const_cast<void*>(memory));
  auto next = allocations_.upper_bound(start);
  if (next == allocations_.begin()) return false;
  const auto& [base, size] = *std::prev(next);
  return start + bytes <= base + size;
}

void EmulatedDevice::CopyIn(void* to, const void* from_host, int64_t bytes) {
  HADAL_CHECK(Owns(to, bytes));
  HADAL_CHECK(!Owns(from_host, bytes));
  const OpenMemory open(*this);
  std::memcpy(to, from_host, bytes);
}

void EmulatedDevice::EnqueueCopyIn(void* to, const void* from_host, int64_t bytes) {
  const auto at = static_cast<std::byte*>(const_cast<void*>(from_host));
  const auto next = host_allocations_.upper_bound(at);
  HADAL_CHECK(next != host_allocations_.begin());
  HADAL_CHECK(at + bytes <= std::prev(next)->first + std::prev(next)->second);
  enqueued_.push_back({from_host, bytes, Crc32c(from_host, bytes)});
  CopyIn(to, from_host, bytes);
}

void EmulatedDevice::CopyOut(void* to_host, const void* from, int64_t bytes) {
  HADAL_CHECK(Owns(from, bytes));
  HADAL_CHECK(!Owns(to_host, bytes));
  const OpenMemory open(*this);
  std::memcpy(to_host, from, bytes);
}

void EmulatedDevice::CopyWithin(void* to, const void* from, int64_t bytes) {
  HADAL_CHECK(Owns(to, bytes));
  HADAL_CHECK(Owns(from, bytes));
  const OpenMemory open(*this);
  std::memcpy(to, from, bytes);
}

void EmulatedDevice::Clear(void* memory, int64_t bytes) {
  HADAL_CHECK(Owns(memory, bytes));
  const OpenMemory open(*this);
  std::memset(memory, 0, bytes);
}

void EmulatedDevice::Synchronize() {
  for (const Enqueued& copy : enqueued_) HADAL_CHECK_EQ(Crc32c(copy.from, copy.bytes), copy.checksum);
  enqueued_.clear();
}

}  // namespace hadal::testing
