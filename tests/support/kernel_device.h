// The device that runs CUDA kernels in a test: the emulator on the CPU or a GPU, depending on what the program links
// (kernel_device_emulated.cc, tests/gpu/kernel_device_gpu.cc), so that the same tests serve both.
//
//   KernelDevice         device memory and a stream
//   DeviceVectorOf<T>    an array there, from host values or uninitialised (NaN)
//   DeviceMatrixOf<T>    a strided, possibly misaligned matrix there, which detects writes outside its rows
// Host values are floats; BFloat16 arrays round them to nearest even.
#pragma once

#include <bit>
#include <memory>
#include <type_traits>

#include "kernels/cuda/device_view.h"
#include "runtime/tensor.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {

class KernelDevice {
 public:
  // `seed` determines the emulator's order of blocks and threads; a GPU ignores it.
  explicit KernelDevice(uint64_t seed);
  ~KernelDevice();
  KernelDevice(const KernelDevice&) = delete;
  KernelDevice& operator=(const KernelDevice&) = delete;

  cuda::StreamHandle stream();
  // Device memory, every byte 0xFF; freed with the device.
  void* Allocate(int64_t bytes);
  void Write(void* to, const void* from, int64_t bytes);
  // Waits for the stream first.
  void Read(void* to, const void* from, int64_t bytes);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The float that a T holds when x is stored in it.
template <typename T>
float Rounded(float x) {
  if constexpr (std::is_same_v<T, float>) return x;
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t below = bits & 0xFFFF, upper = bits - below;
  const bool up = below > 0x8000 || (below == 0x8000 && (upper >> 16 & 1));
  return std::bit_cast<float>(up ? upper + 0x10000 : upper);
}
template <typename T>
std::vector<float> Rounded(std::vector<float> values) {
  for (float& x : values) x = Rounded<T>(x);
  return values;
}

// Converts a host float to the element of a device array, and back.
template <typename T>
T Stored(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else {
    return {static_cast<uint16_t>(std::bit_cast<uint32_t>(Rounded<T>(x)) >> 16)};
  }
}
inline float Value(float x) { return x; }
inline float Value(cuda::BFloat16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }

template <typename T>
class DeviceVectorOf {
 public:
  DeviceVectorOf(KernelDevice& device, int64_t size)
      : device_(device), size_(size), data_(static_cast<T*>(device.Allocate(size * sizeof(T)))) {}
  DeviceVectorOf(KernelDevice& device, const std::vector<T>& values) : DeviceVectorOf(device, values.size()) {
    device.Write(data_, values.data(), size_ * sizeof(T));
  }

  T* data() const { return data_; }
  VectorOf<T> view() const { return {data_, size_}; }
  std::vector<T> Read() const {
    std::vector<T> values(size_);
    device_.Read(values.data(), data_, size_ * sizeof(T));
    return values;
  }

 private:
  KernelDevice& device_;
  int64_t size_;
  T* data_;
};

template <typename T>
class DeviceMatrixOf {
 public:
  DeviceMatrixOf(KernelDevice& device, const std::vector<float>& dense, int64_t rows, int64_t columns, Placement place)
      : rows_(rows), columns_(columns), place_(place), storage_(device, Spread(dense, rows, columns, place)) {}

  MatrixOf<T> view() const { return {storage_.data() + place_.offset, rows_, columns_, columns_ + place_.padding}; }
  std::vector<float> dense() const {
    const std::vector<T> stored = storage_.Read();
    std::vector<float> values;
    for (int64_t i = 0; i < rows_ * columns_; ++i) values.push_back(Value(stored[At(i / columns_, i % columns_)]));
    return values;
  }
  // Whether nothing outside the rows was written.
  bool guards_intact() const {
    const std::vector<T> stored = storage_.Read();
    for (int64_t i = 0; i < static_cast<int64_t>(stored.size()); ++i) {
      const int64_t from_start = i - place_.offset, stride = columns_ + place_.padding;
      const bool inside = from_start >= 0 && from_start / stride < rows_ && from_start % stride < columns_;
      if (!inside && Value(stored[i]) != kGuard) return false;
    }
    return true;
  }

 private:
  static constexpr float kGuard = -12288.0f;  // exact in BFloat16
  int64_t At(int64_t i, int64_t j) const { return place_.offset + i * (columns_ + place_.padding) + j; }
  static std::vector<T> Spread(const std::vector<float>& dense, int64_t rows, int64_t columns, Placement place) {
    std::vector<T> storage(place.offset + rows * (columns + place.padding), Stored<T>(kGuard));
    for (int64_t i = 0; i < rows * columns; ++i) {
      storage[place.offset + i / columns * (columns + place.padding) + i % columns] = Stored<T>(dense[i]);
    }
    return storage;
  }

  int64_t rows_, columns_;
  Placement place_;
  DeviceVectorOf<T> storage_;
};

}  // namespace hadal::testing
