// Tensor views: pointers with a shape. Views own nothing; the arena (arena.h) owns every buffer.
//
// Layout: row-major; element (i, j) of a matrix is data[i * stride + j]. `stride` is in elements, stride ≥ columns. A
// default-constructed view is empty: "not given" in the arguments of kernels.
// Matrix holds floats: everything that CPU kernels read, and all that is fp32 on every device (statistics, gradients of
// weights, losses). AnyMatrix has its element type at run time, for tensors that a device may store in bf16. floats()
// or of<T>() convert it to a typed view and check the type.
// Thread safety: plain values.
#pragma once

#include <cstdint>
#include <type_traits>

#include "runtime/check.h"
#include "runtime/storage.h"

namespace hadal {

// A writable matrix of T. [rows, columns]
template <typename T>
struct MatrixOf {
  T* data = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t stride = 0;

  MatrixOf() = default;
  MatrixOf(T* d, int64_t r, int64_t c) : data(d), rows(r), columns(c), stride(c) {}
  MatrixOf(T* d, int64_t r, int64_t c, int64_t s) : data(d), rows(r), columns(c), stride(s) {}
  // A mutable view converts to a read-only one.
  template <typename U>
  requires(std::is_same_v<T, const U>) MatrixOf(const MatrixOf<U>& other)  // NOLINT(google-explicit-constructor)
      : data(other.data), rows(other.rows), columns(other.columns), stride(other.stride) {}

  bool empty() const { return data == nullptr; }
  T* row(int64_t i) const { return data + i * stride; }
  // Columns [first, first + count) of every row.
  MatrixOf Columns(int64_t first, int64_t count) const {
    HADAL_CHECK_LE(first + count, columns);
    return MatrixOf(data + first, rows, count, stride);
  }
  // Rows [first, first + count).
  MatrixOf Rows(int64_t first, int64_t count) const {
    HADAL_CHECK_LE(first + count, rows);
    return MatrixOf(data + first * stride, count, columns, stride);
  }
};

// A contiguous vector of T. [size]
template <typename T>
struct VectorOf {
  T* data = nullptr;
  int64_t size = 0;

  VectorOf() = default;
  VectorOf(T* d, int64_t n) : data(d), size(n) {}
  template <typename U>
  requires(std::is_same_v<T, const U>) VectorOf(const VectorOf<U>& other)  // NOLINT(google-explicit-constructor)
      : data(other.data), size(other.size) {}

  bool empty() const { return data == nullptr; }
  T& operator[](int64_t i) const { return data[i]; }
};

// A matrix with elements of type `storage`. `Void`: void, or const void if it is read-only. [rows, columns]
template <typename Void>
struct AnyMatrixOf {
  template <typename T>
  using Element = std::conditional_t<std::is_const_v<Void>, const T, T>;
  using Byte = Element<char>;

  Void* data = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t stride = 0;  // in elements
  Storage storage = Storage::kFloat32;

  AnyMatrixOf() = default;
  AnyMatrixOf(Void* d, int64_t r, int64_t c, Storage s) : data(d), rows(r), columns(c), stride(c), storage(s) {}
  AnyMatrixOf(Element<float>* d, int64_t r, int64_t c) : data(d), rows(r), columns(c), stride(c) {}
  AnyMatrixOf(Element<float>* d, int64_t r, int64_t c, int64_t s) : data(d), rows(r), columns(c), stride(s) {}
  // Statically typed views convert implicitly; so does a mutable view to a read-only one.
  template <typename T>
  requires(std::is_const_v<Void> || !std::is_const_v<T>)
      AnyMatrixOf(const MatrixOf<T>& m)  // NOLINT(google-explicit-constructor)
      : data(m.data), rows(m.rows), columns(m.columns), stride(m.stride), storage(kStorageOf<std::remove_const_t<T>>) {}
  template <typename Other>
  requires(std::is_const_v<Void> && !std::is_const_v<Other>)
      AnyMatrixOf(const AnyMatrixOf<Other>& m)  // NOLINT(google-explicit-constructor)
      : data(m.data), rows(m.rows), columns(m.columns), stride(m.stride), storage(m.storage) {}

  bool empty() const { return data == nullptr; }
  // The same view as a matrix of T. REQUIRES: stored as T, or empty.
  template <typename T>
  MatrixOf<Element<T>> of() const {
    if (!empty()) HADAL_CHECK(storage == kStorageOf<T>);
    return {static_cast<Element<T>*>(data), rows, columns, stride};
  }
  MatrixOf<Element<float>> floats() const { return of<float>(); }
  // The size of all elements in bytes. REQUIRES: contiguous.
  int64_t bytes() const {
    HADAL_CHECK_EQ(stride, columns);
    return rows * columns * BytesOf(storage);
  }

  AnyMatrixOf Columns(int64_t first, int64_t count) const {
    HADAL_CHECK_LE(first + count, columns);
    AnyMatrixOf part = *this;
    part.data = static_cast<Byte*>(data) + first * BytesOf(storage);
    part.columns = count;
    return part;
  }
  AnyMatrixOf Rows(int64_t first, int64_t count) const {
    HADAL_CHECK_LE(first + count, rows);
    AnyMatrixOf part = *this;
    part.data = static_cast<Byte*>(data) + first * stride * BytesOf(storage);
    part.rows = count;
    return part;
  }
};

using AnyMatrix = AnyMatrixOf<void>;
using ConstAnyMatrix = AnyMatrixOf<const void>;

// A contiguous vector with elements of type `storage`. [size]
struct ConstAnyVector {
  const void* data = nullptr;
  int64_t size = 0;
  Storage storage = Storage::kFloat32;

  ConstAnyVector() = default;
  template <typename T>
  ConstAnyVector(const VectorOf<T>& v)  // NOLINT(google-explicit-constructor)
      : data(v.data), size(v.size), storage(kStorageOf<std::remove_const_t<T>>) {}
  ConstAnyVector(const float* d, int64_t n) : data(d), size(n) {}

  bool empty() const { return data == nullptr; }
  // REQUIRES: stored as T, or empty.
  template <typename T>
  VectorOf<const T> of() const {
    if (!empty()) HADAL_CHECK(storage == kStorageOf<T>);
    return {static_cast<const T*>(data), size};
  }
  VectorOf<const float> floats() const { return of<float>(); }
};

using Matrix = MatrixOf<float>;
using ConstMatrix = MatrixOf<const float>;
using Vector = VectorOf<float>;
using ConstVector = VectorOf<const float>;
using ConstTokens = VectorOf<const int32_t>;  // token ids, positions or sentence offsets

}  // namespace hadal
