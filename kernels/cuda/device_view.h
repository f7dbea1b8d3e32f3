// Views of device memory for kernels: a matrix, and a pointer that only the thread layer (thread_layer.h, the interface
// between a kernel and the machine) may dereference.
//
// Kernels access memory through Load and Store of the thread layer, where the tests' emulator checks bounds and
// alignment; DevicePointer therefore has no operator*. A default-constructed view is null: "not given".
// Kernels take the argument structs of kernels/<op>.h, and access their fields through ViewOf.
// Layout: row-major; element (i, j) of a matrix is data + i · stride + j. BFloat16 is that of runtime/storage.h;
// kernels convert with eight.h.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "kernels/cuda/qualifiers.h"
#include "runtime/check.h"
#include "runtime/storage.h"
#include "runtime/tensor.h"

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
  template <typename U>
  requires(std::is_same_v<T, U> || std::is_same_v<T, const U>) HADAL_HOST_DEVICE
      DevicePointer(const VectorOf<U>& v)  // NOLINT(google-explicit-constructor)
      : address(v.data) {}
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

  template <typename U>
  requires(std::is_same_v<T, U> || std::is_same_v<T, const U>) HADAL_HOST_DEVICE
      DeviceMatrix(const MatrixOf<U>& m)  // NOLINT(google-explicit-constructor)
      : data(m.data), stride(m.stride) {}

  HADAL_HOST_DEVICE explicit operator bool() const { return static_cast<bool>(data); }
  HADAL_HOST_DEVICE DevicePointer<T> row(int64_t i) const { return data + i * stride; }
};

// The view of a field of an operation's arguments; null if it is empty. For a matrix whose type is known only at run
// time, launch code chooses T. REQUIRES: stored as T, or empty (checked in the emulator).
template <typename T>
HADAL_HOST_DEVICE DevicePointer<T> ViewOf(T* place) {
  return {place};
}
template <typename T>
HADAL_HOST_DEVICE DevicePointer<T> ViewOf(const VectorOf<T>& v) {
  return {v.data};
}
template <typename T>
HADAL_HOST_DEVICE DeviceMatrix<T> ViewOf(const MatrixOf<T>& m) {
  return {m.data, m.stride};
}
template <typename T, typename Void>
HADAL_HOST_DEVICE auto ViewOf(const AnyMatrixOf<Void>& m) {
  using Element = std::conditional_t<std::is_const_v<Void>, const T, T>;
#if !defined(__CUDACC__)
  HADAL_CHECK(m.data == nullptr || m.storage == kStorageOf<T>);
#endif
  return DeviceMatrix<Element>(static_cast<Element*>(m.data), m.stride);
}

// Whether an optional argument is given.
template <typename View>
HADAL_HOST_DEVICE bool Given(const View& view) {
  return view.data != nullptr;
}

// Calls body(T()) with the element type of `storage`.
template <typename Body>
void WithElement(Storage storage, Body&& body) {
  if (storage == Storage::kFloat32) return body(float());
  body(BFloat16());
}

// Calls body(X(), Y()) with the element types of x and of y, which may be BFloat16 where x is fp32.
template <typename Body>
void WithElements(Storage x, Storage y, Body&& body) {
  if (x == Storage::kFloat32) return WithElement(y, [&]<typename Y>(Y) { body(float(), Y()); });
  HADAL_CHECK(y == Storage::kBFloat16);
  body(BFloat16(), BFloat16());
}

// Whether every row is 16-byte aligned; true for a null view.
template <typename T>
HADAL_HOST_DEVICE bool RowsOn16Bytes(const DeviceMatrix<T>& m) {
  return reinterpret_cast<uintptr_t>(m.data.address) % 16 == 0 && m.stride * sizeof(T) % 16 == 0;
}
template <typename T>
HADAL_HOST_DEVICE bool On16Bytes(const DevicePointer<T>& p) {
  return reinterpret_cast<uintptr_t>(p.address) % 16 == 0;
}

// Whether all vectors that are given begin on a 16-byte boundary.
template <typename... T>
bool On16Bytes(const VectorOf<T>&... vectors) {
  return (On16Bytes(ViewOf(vectors)) && ...);
}
// Whether kernels can access rows of `width` elements eight at a time (eight.h): in each given matrix, `width` is a
// multiple of 8 and every row begins on a 16-byte boundary.
inline bool InAlignedEights(int64_t width, std::initializer_list<ConstAnyMatrix> matrices) {
  bool aligned = width % 8 == 0;
  for (const ConstAnyMatrix& m : matrices) {
    aligned = aligned && reinterpret_cast<uintptr_t>(m.data) % 16 == 0 && m.stride * BytesOf(m.storage) % 16 == 0;
  }
  return aligned;
}

}  // namespace hadal::cuda
