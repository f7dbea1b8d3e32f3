#include "tests/support/emulated_device.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <set>
#include <thread>
#include <tuple>

#include "kernels/cuda_host/operations.h"
#include "kernels/cuda_host/own_memory.h"
#include "runtime/check.h"
#include "runtime/crc32c.h"

namespace hadal::testing {
namespace {

constexpr std::chrono::seconds kLongestStandstill{30};

}  // namespace

// While it lives the host may touch the device's memory.
struct EmulatedDevice::OpenMemory {
  explicit OpenMemory(EmulatedDevice& d) : device(d) { device.Open(); }
  ~OpenMemory() { device.Close(); }
  EmulatedDevice& device;
};

class EmulatedDevice::Graph : public DeviceGraph {
 public:
  Graph(const EmulatedDevice& d, std::vector<std::function<void()>> w) : device(&d), work(std::move(w)) {}

  const EmulatedDevice* device;
  std::vector<std::function<void()>> work;
  bool launched = false;
};

// A kernel or a copy on a queue beside the main order.
class EmulatedDevice::QueuedWork : public PendingWork {
 public:
  QueuedWork(std::function<void()> run, int late) : run_(std::move(run)), late_(late) {}

  // Puts a kernel, which its own thread must ask for, or a copy.
  static void Put(EmulatedQueues& queues, DeviceQueues::Queue queue, const std::shared_ptr<QueuedWork>& work,
                  bool is_kernel) {
    const std::lock_guard lock(work->mutex_);  // until it knows what it is behind
    if (is_kernel) work->owner_ = std::this_thread::get_id();
    work->behind_ = queues.PutKernel(queue, work);
  }

  bool Done() override {
    if (done_) return true;  // also asked by the thread of a message that was put behind it when it was done
    HADAL_CHECK(owner_ == std::thread::id() || owner_ == std::this_thread::get_id());
    const std::lock_guard lock(mutex_);
    if (done_) return true;
    const auto done = [](const auto& work) { return work->Done(); };
    if (!std::all_of(behind_.begin(), behind_.end(), done) || late_-- > 0) return false;
    behind_.clear();
    run_();
    return done_ = true;
  }

 private:
  std::mutex mutex_;
  std::thread::id owner_;  // none: any thread may ask for it
  PendingList behind_;
  const std::function<void()> run_;
  int late_;
  std::atomic<bool> done_ = false;
};

class EmulatedDevice::Loops : public cuda::Matmul {
 public:
  explicit Loops(EmulatedDevice& device) : device_(device) {}

  bool Offers(const cuda::MatmulArgs& args) override {
    cuda::CheckArgs(args);
    const bool mask_or_sums = args.written_mask != nullptr || args.read_mask != nullptr || !args.a_sums.empty();
    return !(args.HasEpilogue() && device_.refuses_epilogues_) && !(mask_or_sums && device_.refuses_masks_and_sums_);
  }

  void Multiply(const cuda::MatmulArgs& args) override {
    HADAL_CHECK(Offers(args));
    for (const int64_t i : {int64_t{0}, args.count - 1}) {
      const cuda::MatmulArgs one = Product(args, i);
      CheckMatrix(one.a, args.a_transposed ? args.k : args.m, args.a_transposed ? args.m : args.k);
      CheckMatrix(one.b, args.b_transposed ? args.n : args.k, args.b_transposed ? args.k : args.n);
      CheckMatrix(one.c, args.m, args.n);
      if (!one.a_sums.empty()) HADAL_CHECK(device_.Owns(one.a_sums.data, args.m * BytesOf(Storage::kFloat32)));
    }
    if (!args.bias.empty()) HADAL_CHECK(device_.Owns(args.bias.data, args.n * BytesOf(args.bias.storage)));
    for (const std::byte* const mask : {static_cast<const std::byte*>(args.written_mask), args.read_mask}) {
      if (mask != nullptr) HADAL_CHECK(device_.Owns(mask, ReluMaskBytes(args.m, args.n)));
    }
    if (known_.emplace(args.m, args.n, args.k, args.a_transposed, args.b_transposed, args.accumulate).second)
      device_.Standstill();
    const auto multiply = [this, args] {
      const OpenMemory open(device_);
      for (int64_t i = 0; i < args.count; ++i) MultiplyOne(Product(args, i));
    };
    if (args.queue == DeviceQueues::kMain) return device_.Enqueue(multiply);
    HADAL_CHECK(device_.Owns(args.workspace, cuda::OwnMemory::kWorkspaceBytes));
    ++device_.emulator_.launches();
    device_.EnqueueBeside(args.queue, multiply);
  }

 private:
  // Product i of a batch.
  static cuda::MatmulArgs Product(const cuda::MatmulArgs& args, int64_t i) {
    cuda::MatmulArgs one = args;
    one.a.data = static_cast<const std::byte*>(args.a.data) + i * args.a_step * BytesOf(args.a.storage);
    one.b.data = static_cast<const std::byte*>(args.b.data) + i * args.b_step * BytesOf(args.b.storage);
    one.c.data = static_cast<std::byte*>(args.c.data) + i * args.c_step * BytesOf(args.c.storage);
    if (!args.a_sums.empty()) one.a_sums.data += i * args.a_sums_step;
    return one;
  }

  static void MultiplyOne(const cuda::MatmulArgs& args) {
    const std::vector<float> a = Values(args.a, args.m, args.k, args.a_transposed);
    const std::vector<float> b = Values(args.b, args.n, args.k, !args.b_transposed);
    for (int64_t i = 0; i < args.m; ++i) {
      for (int64_t j = 0; j < args.n; ++j) Element(args, a.data() + i * args.k, b.data() + j * args.k, i, j);
      if (args.a_sums.empty()) continue;
      args.a_sums[i] = 0;
      for (int64_t k = 0; k < args.k; ++k) args.a_sums[i] += a[i * args.k + k];
    }
  }

  void CheckMatrix(const ConstAnyMatrix& m, int64_t rows, int64_t columns) const {
    HADAL_CHECK_GE(m.stride, columns);
    HADAL_CHECK(device_.Owns(m.data, ((rows - 1) * m.stride + columns) * BytesOf(m.storage)));
  }

  // As floats, [rows, depth]; `turned`: stored [depth, rows].
  static std::vector<float> Values(const ConstAnyMatrix& m, int64_t rows, int64_t depth, bool turned) {
    std::vector<float> values(rows * depth);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t k = 0; k < depth; ++k)
        values[i * depth + k] = At(m.data, m.storage, turned ? k * m.stride + i : i * m.stride + k);
    }
    return values;
  }

  static float At(const void* data, Storage storage, int64_t i) {
    return storage == Storage::kFloat32 ? static_cast<const float*>(data)[i]
                                        : Widened(static_cast<const BFloat16*>(data)[i]);
  }

  static void Element(const cuda::MatmulArgs& args, const float* a, const float* b, int64_t i, int64_t j) {
    float sum = 0.0f;
    for (int64_t k = 0; k < args.k; ++k) sum = std::fma(a[k], b[k], sum);
    const int64_t place = i * args.c.stride + j;
    if (args.accumulate) sum += At(args.c.data, args.c.storage, place);
    if (!args.bias.empty()) sum += At(args.bias.data, args.bias.storage, j);
    float value = args.relu && sum < 0.0f ? 0.0f : sum;
    // A bit for each element; which, is nobody else's affair.
    const int64_t byte = i * ReluMaskBytes(1, args.n) + j / 8;
    const std::byte bit = std::byte{1} << (7 - j % 8);
    if (args.written_mask != nullptr) {
      std::byte& mask = args.written_mask[byte];
      mask = value > 0.0f ? mask | bit : mask & ~bit;
    }
    if (args.read_mask != nullptr && (args.read_mask[byte] & bit) == std::byte{0}) value = 0.0f;
    if (args.c.storage == Storage::kFloat32) {
      static_cast<float*>(args.c.data)[place] = value;
    } else {
      static_cast<BFloat16*>(args.c.data)[place] = RoundedToBFloat16(value);
    }
  }

  EmulatedDevice& device_;
  std::set<std::tuple<int64_t, int64_t, int64_t, bool, bool, bool>> known_;
};

EmulatedDevice::EmulatedDevice(uint64_t seed, int64_t most_bytes)
    : emulator_(seed), random_(seed), most_bytes_(most_bytes), matmul_(std::make_unique<Loops>(*this)) {
  emulator_.AroundLaunches([this] { Open(); }, [this] { Close(); });
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

cuda::StreamHandle EmulatedDevice::HandleOf(DeviceQueues::Queue queue) {
  if (queue == DeviceQueues::kMain) return {emulator_.stream(), &emulator_.launches(), &first_launches()};
  HADAL_CHECK(!capturing() || queue == kernel_queue_);
  std::unique_ptr<cuda::KernelEmulator>& beside = beside_[queue];
  if (beside == nullptr) {
    const std::lock_guard lock(mutex_);
    beside = std::make_unique<cuda::KernelEmulator>(random_());
    beside->AroundLaunches([this] { Open(); }, [this] { Close(); });
    for (const auto& [memory, bytes] : allocations_) beside->Register(memory, bytes);
    beside->Divert([this, queue](const cuda::LaunchShape&, std::function<void()> launch) {
      EnqueueBeside(queue, std::move(launch));
    });
  }
  return {beside->stream(), &emulator_.launches(), &first_launches()};
}

void EmulatedDevice::Standstill() const {
  LaunchDevice::Standstill();
  if (capturing()) return;  // its beginning was one
  const auto start = std::chrono::steady_clock::now();
  while (!queues_.Idle()) {
    HADAL_CHECK(std::chrono::steady_clock::now() - start < kLongestStandstill);
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

int64_t EmulatedDevice::FreeBytes() const {
  Standstill();
  return most_bytes_ - used_bytes_;
}

absl::StatusOr<std::byte*> EmulatedDevice::Allocate(int64_t bytes) {
  HADAL_CHECK_GE(bytes, 1);
  HADAL_CHECK(!capturing());
  if (bytes > FreeBytes()) return absl::ResourceExhaustedError(absl::StrCat("only ", FreeBytes(), " bytes are free"));
  const std::lock_guard lock(mutex_);
  std::byte* const memory = guarded_.Allocate(bytes);
  allocations_[memory] = bytes;
  used_bytes_ += bytes;
  emulator_.Register(memory, bytes);
  for (const auto& [queue, emulator] : beside_) emulator->Register(memory, bytes);
  return memory;
}

void EmulatedDevice::Free(std::byte* memory) {
  Standstill();
  const std::lock_guard lock(mutex_);
  const auto found = allocations_.find(memory);
  HADAL_CHECK(found != allocations_.end());
  emulator_.Unregister(memory);
  for (const auto& [queue, emulator] : beside_) emulator->Unregister(memory);
  guarded_.Free(memory, found->second);
  used_bytes_ -= found->second;
  allocations_.erase(found);
}

absl::StatusOr<std::byte*> EmulatedDevice::AllocateHost(int64_t bytes) {
  HADAL_CHECK(!capturing());
  Standstill();
  std::byte* memory = new std::byte[bytes]();
  const std::lock_guard lock(mutex_);
  host_allocations_[memory] = bytes;
  return memory;
}

void EmulatedDevice::FreeHost(std::byte* memory) {
  Standstill();
  const std::lock_guard lock(mutex_);
  HADAL_CHECK_EQ(host_allocations_.erase(memory), 1u);
  delete[] memory;
}

void EmulatedDevice::Open() {
  const std::lock_guard lock(mutex_);
  if (opened_++ == 0) guarded_.Open();
}

void EmulatedDevice::Close() {
  const std::lock_guard lock(mutex_);
  if (--opened_ == 0) guarded_.Close();
}

bool EmulatedDevice::Owns(const void* memory, int64_t bytes) const {
  const std::lock_guard lock(mutex_);
  auto* const start = static_cast<std::byte*>(const_cast<void*>(memory));
  auto next = allocations_.upper_bound(start);
  if (next == allocations_.begin()) return false;
  const auto& [base, size] = *std::prev(next);
  return start + bytes <= base + size;
}

void EmulatedDevice::Poison(void* memory, int64_t bytes) {
  const OpenMemory open(*this);
  std::memset(memory, 0xFF, bytes);
}

uint32_t EmulatedDevice::Checksum(const void* memory, int64_t bytes) {
  const OpenMemory open(*this);
  return Crc32c(memory, bytes);
}

void EmulatedDevice::CopyAcross(EmulatedDevice& to_device, void* to, EmulatedDevice& from_device, const void* from,
                                int64_t bytes) {
  const OpenMemory open_to(to_device), open_from(from_device);
  std::memcpy(to, from, bytes);
}

void EmulatedDevice::CopyIn(void* to, const void* from_host, int64_t bytes) {
  HADAL_CHECK(!capturing());
  HADAL_CHECK(Owns(to, bytes));
  HADAL_CHECK(!Owns(from_host, bytes));
  ++main_copies_;
  {
    const OpenMemory open(*this);
    std::memcpy(to, from_host, bytes);
  }
  WaitedUntil(Position());
}

bool EmulatedDevice::OwnsHost(const void* memory, int64_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto at = static_cast<std::byte*>(const_cast<void*>(memory));
  const auto next = host_allocations_.upper_bound(at);
  return next != host_allocations_.begin() && at + bytes <= std::prev(next)->first + std::prev(next)->second;
}

void EmulatedDevice::EnqueueCopyIn(void* to, const void* from_host, int64_t bytes) {
  HADAL_CHECK(OwnsHost(from_host, bytes));
  HADAL_CHECK(!capturing());
  HADAL_CHECK(Owns(to, bytes));
  ++main_copies_;
  enqueued_.push_back(
      {.position = Position(), .from = from_host, .bytes = bytes, .checksum = Crc32c(from_host, bytes)});
  const OpenMemory open(*this);
  std::memcpy(to, from_host, bytes);
}

void EmulatedDevice::CopyOut(void* to_host, const void* from, int64_t bytes) {
  HADAL_CHECK(!capturing());
  HADAL_CHECK(Owns(from, bytes));
  HADAL_CHECK(!Owns(to_host, bytes));
  ++main_copies_;
  WaitedUntil(Position());
  const OpenMemory open(*this);
  std::memcpy(to_host, from, bytes);
}

void EmulatedDevice::EnqueueCopyOut(DeviceQueues::Queue queue, void* to_host, const void* from, int64_t bytes) {
  HADAL_CHECK(OwnsHost(to_host, bytes));
  HADAL_CHECK(Owns(from, bytes));
  if (queue == DeviceQueues::kMain) {
    HADAL_CHECK(!capturing());
    ++main_copies_;
    Enqueued& copy = enqueued_.emplace_back(Enqueued{.position = Position(), .bytes = bytes, .to_host = to_host});
    copy.contents.resize(bytes);
    const OpenMemory open(*this);
    std::memcpy(copy.contents.data(), from, bytes);
    std::memset(to_host, 0xFF, bytes);
    return;
  }
  const auto copy = [this, to_host, from, bytes] {
    const OpenMemory open(*this);
    std::memcpy(to_host, from, bytes);
  };
  QueuedWork::Put(queues_, queue, std::make_shared<QueuedWork>(copy, copies_++ % 4), false);
}

void EmulatedDevice::CopyWithin(void* to, const void* from, int64_t bytes) {
  HADAL_CHECK(Owns(to, bytes));
  HADAL_CHECK(Owns(from, bytes));
  Enqueue([this, to, from, bytes] {
    const OpenMemory open(*this);
    std::memcpy(to, from, bytes);
  });
}

void EmulatedDevice::Clear(void* memory, int64_t bytes) {
  HADAL_CHECK(Owns(memory, bytes));
  Enqueue([this, memory, bytes] {
    const OpenMemory open(*this);
    std::memset(memory, 0, bytes);
  });
}

void EmulatedDevice::Enqueue(std::function<void()> work) {
  ++emulator_.launches();
  if (!Records(work)) work();
}

void EmulatedDevice::EnqueueBeside(DeviceQueues::Queue queue, std::function<void()> work) {
  if (Records([=, this] { EnqueueBeside(queue, work); })) return;
  const int late = static_cast<int>(random_() % 4);
  QueuedWork::Put(queues_, queue, std::make_shared<QueuedWork>(std::move(work), late), true);
}

bool EmulatedDevice::Records(std::function<void()> work) {
  if (capturer_.load() != std::this_thread::get_id()) return false;
  recording_.push_back(std::move(work));
  return true;
}

bool EmulatedDevice::Idle() {
  HADAL_CHECK(!capturing());
  return true;
}

void EmulatedDevice::BeginCapture() {
  Standstill();
  HADAL_CHECK(capturer_.exchange(std::this_thread::get_id()) == std::thread::id());
  launches_before_capture_ = emulator_.launches();
  emulator_.Divert(
      [this](const cuda::LaunchShape&, std::function<void()> launch) { recording_.push_back(std::move(launch)); });
}

absl::StatusOr<std::unique_ptr<DeviceGraph>> EmulatedDevice::EndCapture() {
  HADAL_CHECK(capturer_.exchange({}) == std::this_thread::get_id());
  emulator_.Divert(nullptr);
  emulator_.launches() = launches_before_capture_;
  std::vector<std::function<void()>> work = std::exchange(recording_, {});
  if (refuses_graphs_) return absl::ResourceExhaustedError("no memory for graphs");
  return std::make_unique<Graph>(*this, std::move(work));
}

void EmulatedDevice::Launch(DeviceGraph& graph) {
  HADAL_CHECK(!capturing());
  auto& recorded = static_cast<Graph&>(graph);
  HADAL_CHECK_EQ(recorded.device, this);
  if (!std::exchange(recorded.launched, true)) Standstill();
  const int64_t launches = emulator_.launches();
  for (const std::function<void()>& work : recorded.work) work();
  emulator_.launches() = launches + 1;
}

void EmulatedDevice::Synchronize() {
  HADAL_CHECK(!capturing());
  WaitedUntil(Position());
}

void EmulatedDevice::SeenDone(int64_t position) {
  for (; !enqueued_.empty() && enqueued_.front().position <= position; enqueued_.pop_front()) {
    const Enqueued& copy = enqueued_.front();
    if (copy.to_host != nullptr) {
      std::memcpy(copy.to_host, copy.contents.data(), copy.bytes);
    } else {
      HADAL_CHECK_EQ(Crc32c(copy.from, copy.bytes), copy.checksum);
    }
  }
}

void EmulatedDevice::WaitedUntil(int64_t position) {
  SeenDone(position);
  if (position < Position() || position == drained_) return;
  drained_ = position;
  ++drains_;
}

}  // namespace hadal::testing
