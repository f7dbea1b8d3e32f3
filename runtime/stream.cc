#include "runtime/stream.h"

#include <algorithm>
#include <cstring>

namespace hadal {

void Stream::Copy(void* to, const void* from, int64_t bytes) const {
  HADAL_CHECK(queue_ == DeviceQueues::kMain);
  if (bytes == 0) return;
  if (device_ != nullptr) return device_->CopyWithin(to, from, bytes);
  ForRanges(bytes, 1 << 16, [=](int64_t begin, int64_t end) {
    std::memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin, end - begin);
  });
}

void Stream::Clear(void* memory, int64_t bytes) const {
  HADAL_CHECK(queue_ == DeviceQueues::kMain);
  if (bytes == 0) return;
  if (device_ != nullptr) return device_->Clear(memory, bytes);
  ForRanges(bytes, 4096,
            [memory](int64_t begin, int64_t end) { std::memset(static_cast<char*>(memory) + begin, 0, end - begin); });
}

void Stream::ToHost(void* to, const void* from, int64_t bytes) const {
  HADAL_CHECK(queue_ == DeviceQueues::kMain);
  if (bytes == 0) return;
  if (device_ != nullptr) return device_->CopyOut(to, from, bytes);
  std::memcpy(to, from, bytes);
}

void Stream::EnqueueToHost(void* to, const void* from, int64_t bytes) const {
  HADAL_CHECK(queue_ == DeviceQueues::kMain);
  if (bytes == 0) return;
  if (device_ != nullptr) return device_->EnqueueCopyOut(queue_, to, from, bytes);
  std::memcpy(to, from, bytes);
}

void Stream::FromHost(void* to, const void* from, int64_t bytes) const {
  HADAL_CHECK(queue_ == DeviceQueues::kMain);
  if (bytes == 0) return;
  if (device_ != nullptr) return device_->CopyIn(to, from, bytes);
  std::memcpy(to, from, bytes);
}

std::vector<float> HostValues(const Stream& stream, const ConstAnyMatrix& matrix) {
  std::vector<float> values(matrix.rows * matrix.columns);
  if (matrix.storage == Storage::kFloat32) {
    stream.ToHost(values.data(), matrix.data, matrix.bytes());
    return values;
  }
  std::vector<BFloat16> stored(values.size());
  stream.ToHost(stored.data(), matrix.data, matrix.bytes());
  std::transform(stored.begin(), stored.end(), values.begin(), Widened);
  return values;
}

}  // namespace hadal
