// Views of device memory for kernels: a matrix, and a pointer that only the thread layer may dereference.
//
// Kernels access memory through Load and Store of thread_layer.h, where the emulator checks bounds and alignment;
// DevicePointer therefore has no operator*. A default-constructed view is null: "not given".
// Layout: row-major; element (i, j) of a matrix is data + i · stride + j. Rows and columns are in the kernel's argument
// struct. BFloat16 is that of runtime/storage.h; kernels convert with eight.h.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/qualifiers.h"
#include "runtime/storage.h"

struct CUstream_st;  // CUDA's own type, so that callers need no CUDA header

namespace hadal::cuda {

class FirstLaunches;  // first_launches.h

// A stream to launch on: cudaStream_t or, in a build for the emulator, the address of the KernelEmulator that runs the
// kernel. Also counts launches and records which kernels have been launched.
struct StreamHandle {
  // Without `count` launches are not counted.
  // NOLINTNEXTLINE(google-explicit-constructor)
  StreamHandle(CUstream_st* s, int64_t* count = nullptr, FirstLaunches* known = nullptr)
      : stream(s), launches(count), firsts(known) {}
  operator CUstream_st*() const { return stream; }  // NOLINT(google-explicit-constructor): for CUDA's functions
  void CountLaunch() const {
    if (launches != nullptr) ++*launches;
  }

  CUstream_st* stream;
  int64_t* launches;      // null: not counted
  FirstLaunches* firsts;  // null: not recorded
};

using hadal::BFloat16;

template <typename T>
struct DevicePointer {
  T* address = nullptr;

  DevicePointer() = default;
  HADAL_HOST_DEVICE DevicePointer(T* a) : address(a) {}  // NOLINT(google-explicit-constructor)
  // A pointer to writable memory converts to a read-only one.
  template <typename U>
  requires(std::is_same_v<T, const U>) HADAL_HOST_DEVICE
      DevicePointer(DevicePointer<U> other)  // NOLINT(google-explicit-constructor)
      : address(other.address) {}
  HADAL_HOST_DEVICE explicit operator bool() const { return address != nullptr; }
  HADAL_HOST_DEVICE DevicePointer operator+(int64_t elements) const { return {address + elements}; }
};

template <typename T>
struct DeviceMatrix {
  DevicePointer<T> data;
  int64_t stride = 0;

  DeviceMatrix() = default;
  HADAL_HOST_DEVICE DeviceMatrix(DevicePointer<T> d, int64_t s) : data(d), stride(s) {}
  template <typename U>
  requires(std::is_same_v<T, const U>) HADAL_HOST_DEVICE
      DeviceMatrix(const DeviceMatrix<U>& other)  // NOLINT(google-explicit-constructor)
      : data(other.data), stride(other.stride) {}

  HADAL_HOST_DEVICE explicit operator bool() const { return static_cast<bool>(data); }
  HADAL_HOST_DEVICE DevicePointer<T> row(int64_t i) const { return data + i * stride; }
};

// Whether every row is 16-byte aligned; true for a null view.
template <typename T>
HADAL_HOST_DEVICE bool RowsOn16Bytes(const DeviceMatrix<T>& m) {
  return reinterpret_cast<uintptr_t>(m.data.address) % 16 == 0 && m.stride * sizeof(T) % 16 == 0;
}
template <typename T>
HADAL_HOST_DEVICE bool On16Bytes(const DevicePointer<T>& p) {
  return reinterpret_cast<uintptr_t>(p.address) % 16 == 0;
}

}  // namespace hadal::cuda
