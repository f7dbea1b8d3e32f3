// Integers in the memory that a transport moves: the host's, or a device's.
#pragma once

#include <algorithm>

#include "runtime/check.h"
#include "runtime/stream.h"

namespace hadal::testing {

class TransferBuffer {
 public:
  // `stream`: where the memory lies.
  TransferBuffer(const Stream& stream, const std::vector<int32_t>& values)
      : stream_(stream), count_(static_cast<int64_t>(values.size())) {
    const int64_t most = std::max<int64_t>(bytes(), 1);
    if (Device* const device = stream_.device(); device != nullptr) {
      absl::StatusOr<std::byte*> memory = device->Allocate(most);
      HADAL_CHECK(memory.ok());
      data_ = *memory;
    } else {
      data_ = new std::byte[most];
    }
    stream_.FromHost(data_, values.data(), bytes());
  }
  TransferBuffer(TransferBuffer&& other) noexcept
      : stream_(other.stream_), count_(other.count_), data_(std::exchange(other.data_, nullptr)) {}
  TransferBuffer& operator=(TransferBuffer&& other) noexcept {
    std::swap(stream_, other.stream_);
    std::swap(count_, other.count_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~TransferBuffer() {
    if (data_ == nullptr) return;
    if (stream_.device() != nullptr) {
      stream_.device()->Free(data_);
    } else {
      delete[] data_;
    }
  }

  void* data() const { return data_; }
  int64_t bytes() const { return count_ * int64_t{sizeof(int32_t)}; }
  std::vector<int32_t> values() const {
    std::vector<int32_t> values(count_);
    stream_.ToHost(values.data(), data_, bytes());
    return values;
  }

 private:
  Stream stream_;
  int64_t count_;
  std::byte* data_ = nullptr;
};

}  // namespace hadal::testing
