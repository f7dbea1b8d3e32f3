// Tensor views: pointers with a shape. They own nothing; the arena (arena.h) owns every buffer.
//
// Layout: row-major; element (i, j) of a matrix is data[i * stride + j]. `stride` is in elements, stride ≥ columns.
// A default-constructed view is empty and stands for "not given" in kernel argument structs.
// Thread safety: plain values.
#pragma once

#include <cstdint>
#include <type_traits>

#include "runtime/check.h"

namespace hadal {

// A matrix of T that may be written.  [rows, columns]
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

// A contiguous vector of T.  [size]
template <typename T>
struct VectorOf {
  T* data = nullptr;
  int64_t size = 0;

  VectorOf() = default;
  VectorOf(T* d, int64_t n) : data(d), size(n) {}
  template <typename U>
  requires(std::is_same_v<T, const U>)
      VectorOf(const VectorOf<U>& other)  // NOLINT(google-explicit-constructor): a view of const, as of a span
      : data(other.data), size(other.size) {}

  bool empty() const { return data == nullptr; }
  T& operator[](int64_t i) const { return data[i]; }
};

using Matrix = MatrixOf<float>;
using ConstMatrix = MatrixOf<const float>;
using Vector = VectorOf<float>;
using ConstVector = VectorOf<const float>;
using ConstTokens = VectorOf<const int32_t>;  // token ids, positions or sentence offsets

}  // namespace hadal
