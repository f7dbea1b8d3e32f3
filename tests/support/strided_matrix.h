// A matrix that is not aligned to vectors and whose row stride is larger than its width, like a column range of a fused
// buffer. Detects writes outside its rows.
#pragma once

#include <iterator>
#include <vector>

#include "runtime/tensor.h"

namespace hadal::testing {

// The layout of a matrix: it starts `offset` elements after a boundary, of 256 bytes on a device. Its row stride is its
// width plus `padding`.
struct Placement {
  int64_t offset = 0, padding = 0;
};

class StridedMatrix {
 public:
  // Copies dense `values` [rows, columns] to an offset of `offset` floats and a row stride of `padding` floats more
  // than the width.
  StridedMatrix(const std::vector<float>& values, int64_t rows, int64_t columns, int64_t offset = 1,
                int64_t padding = 3)
      : storage_(offset + rows * (columns + padding), kGuard),
        rows_(rows),
        columns_(columns),
        offset_(offset),
        stride_(columns + padding) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) storage_[offset + i * stride_ + j] = values[i * columns + j];
    }
  }

  Matrix view() { return {storage_.data() + offset_, rows_, columns_, stride_}; }
  std::vector<float> dense() const {
    std::vector<float> values(rows_ * columns_);
    for (int64_t i = 0; i < rows_; ++i) {
      for (int64_t j = 0; j < columns_; ++j) values[i * columns_ + j] = storage_[offset_ + i * stride_ + j];
    }
    return values;
  }
  // Whether nothing outside the rows was written.
  bool guards_intact() const {
    for (int64_t i = 0; i < static_cast<int64_t>(storage_.size()); ++i) {
      const bool inside = i >= offset_ && (i - offset_) % stride_ < columns_;
      if (!inside && storage_[i] != kGuard) return false;
    }
    return true;
  }

 private:
  static constexpr float kGuard = -12345.0f;
  std::vector<float> storage_;
  int64_t rows_, columns_, offset_, stride_;
};

// A vector with its own storage.
struct HostVector {
  Vector view() { return {values.data(), std::ssize(values)}; }
  const std::vector<float>& Read() const { return values; }

  std::vector<float> values;
};

// The same numbers in double.
inline std::vector<double> Widen(const std::vector<float>& values) { return {values.begin(), values.end()}; }

}  // namespace hadal::testing
