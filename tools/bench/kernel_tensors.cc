#include "tools/bench/kernel_tensors.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "runtime/random.h"

namespace hadal {
namespace {

constexpr int64_t kPattern = 4096;

// The block that a tensor repeats, in the format of `storage`.
std::vector<std::byte> Pattern(Storage storage, TensorValues values) {
  std::vector<std::byte> bytes(kPattern * BytesOf(storage));
  for (int64_t i = 0; i < kPattern; ++i) {
    const double uniform = UniformAt(1, RandomSite::kSampling, 0, i);
    const float value = static_cast<float>(values == TensorValues::kSigned ? 2 * uniform - 1 : 0.5 + uniform);
    if (storage == Storage::kFloat32) {
      reinterpret_cast<float*>(bytes.data())[i] = value;
    } else {
      reinterpret_cast<BFloat16*>(bytes.data())[i] = RoundedToBFloat16(value);
    }
  }
  return bytes;
}

int Times(Traffic traffic) {
  if (traffic == Traffic::kScratch) return 0;
  return traffic == Traffic::kUpdated ? 2 : 1;
}

}  // namespace

std::byte* KernelTensors::Allocate(int64_t bytes) {
  if (!status_.ok()) return nullptr;
  ArenaLayout layout;
  const ArenaSlice slice = layout.ReserveBytes("tensor", bytes);
  absl::StatusOr<Arena> arena = Arena::Allocate(layout, stream_.device());
  if (!arena.ok()) {
    status_ = arena.status();
    return nullptr;
  }
  return arenas_.emplace_back(*std::move(arena)).Get<std::byte>(slice);
}

AnyMatrix KernelTensors::Matrix(Traffic traffic, int64_t rows, int64_t columns, Storage storage, TensorValues values) {
  const int64_t bytes = rows * columns * BytesOf(storage);
  std::byte* const data = Allocate(bytes);
  if (data == nullptr) return {};
  const std::vector<std::byte> pattern = Pattern(storage, values);
  int64_t filled = std::min<int64_t>(bytes, std::ssize(pattern));
  stream_.FromHost(data, pattern.data(), filled);
  while (filled < bytes) {
    const int64_t more = std::min(filled, bytes - filled);
    stream_.Copy(data + filled, data, more);
    filled += more;
  }
  bytes_ += Times(traffic) * static_cast<double>(bytes);
  return {data, rows, columns, storage};
}

Vector KernelTensors::Floats(Traffic traffic, int64_t size, TensorValues values) {
  return {Matrix(traffic, 1, size, Storage::kFloat32, values).floats().data, size};
}

}  // namespace hadal
