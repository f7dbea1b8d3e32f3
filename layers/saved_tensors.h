// The tensors that a sublayer saves of a micro-batch for its backward: a block of memory, divided into tensors from its
// front.
//
// The same code computes the size (without memory) and finds the tensors again. Each tensor is 16-byte aligned, for the
// kernels of a device.
// Thread safety: a plain value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "runtime/tensor.h"

namespace hadal {

// Byte: std::byte, or const std::byte for read-only tensors.
template <typename Byte>
using SavedMatrix = AnyMatrixOf<std::conditional_t<std::is_const_v<Byte>, const void, void>>;
template <typename Byte>
using SavedFloat = std::conditional_t<std::is_const_v<Byte>, const float, float>;

// Bytes of saved tensors: those that the weight half of the backward reads, and those that only the input half reads.
struct SavedBytes {
  int64_t kept = 0, input = 0;
  int64_t all() const { return kept + input; }
};

template <typename Byte>
class SavedTensors {
 public:
  static constexpr int64_t kAlignmentBytes = 16;

  // REQUIRES: `memory` is 16-byte aligned. Null: only computes the size.
  explicit SavedTensors(Byte* memory) : memory_(memory) {}

  SavedMatrix<Byte> Take(Storage storage, int64_t rows, int64_t columns) {
    return {TakeBytes(rows * columns * BytesOf(storage)), rows, columns, storage};
  }
  MatrixOf<SavedFloat<Byte>> TakeFloats(int64_t rows, int64_t columns) {
    return Take(Storage::kFloat32, rows, columns).floats();
  }
  // Takes memory for a component that divides it into tensors itself.
  Byte* TakeBytes(int64_t bytes) {
    Byte* const at = memory_ == nullptr ? nullptr : memory_ + bytes_;
    bytes_ += (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
    return at;
  }
  // Returns memory for further tensors: `apart`, or if that is null, behind what has been taken.
  SavedTensors Behind(Byte* apart) const {
    return SavedTensors(apart != nullptr || memory_ == nullptr ? apart : memory_ + bytes_);
  }
  int64_t bytes() const { return bytes_; }  // taken so far

 private:
  Byte* memory_;
  int64_t bytes_ = 0;
};

}  // namespace hadal
