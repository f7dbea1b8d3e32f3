#include "tools/doctor/doctor_gpu_probe.h"

#include <functional>

#include "kernels/linear.h"
#include "runtime/clock.h"
#include "runtime/status_macros.h"
#include "tools/bench/kernel_tensors.h"

namespace hadal {
namespace {

constexpr int64_t kSmallest = 256, kLargest = 8192;
constexpr double kLongEnough = 1e-3;      // seconds of one product
constexpr double kMeasuredSeconds = 0.2;  // for each of product and copy
constexpr int kTogether = 4;              // launches before the host waits

struct Product {
  explicit Product(const Stream& stream, int64_t n)
      : tensors(stream),
        a(tensors.Matrix(Traffic::kRead, n, n, Storage::kBFloat16)),
        b(tensors.Matrix(Traffic::kRead, n, n, Storage::kBFloat16)),
        c(tensors.Matrix(Traffic::kWritten, n, n, Storage::kBFloat16)) {}
  KernelTensors tensors;
  AnyMatrix a, b, c;
};

// Launches per second. The first launch, which loads and selects kernels, is not timed.
double PerSecond(const Stream& stream, double seconds, const std::function<void()>& launch) {
  launch();
  stream.Synchronize();
  int64_t launches = 0;
  const Stopwatch watch;
  do {
    for (int i = 0; i < kTogether; ++i) launch();
    stream.Synchronize();
    launches += kTogether;
  } while (watch.Seconds() < seconds);
  return static_cast<double>(launches) / watch.Seconds();
}

void Multiply(const Stream& stream, const Product& product) {
  LinearForward(stream, {.x = product.a, .weight = product.b, .y = product.c});
}

}  // namespace

absl::StatusOr<int64_t> ProductSize(const Stream& stream) {
  for (int64_t n = kSmallest; n < kLargest; n *= 2) {
    const Product product(stream, n);
    if (!product.tensors.status().ok()) {
      if (n == kSmallest) return product.tensors.status();
      return n / 2;
    }
    if (1 / PerSecond(stream, 0, [&] { Multiply(stream, product); }) >= kLongEnough) return n;
  }
  return kLargest;
}

absl::StatusOr<GpuRates> MeasureGpu(const Stream& stream, int64_t n) {
  const Product product(stream, n);
  HADAL_RETURN_IF_ERROR(product.tensors.status());
  const auto size = static_cast<double>(n);
  const int64_t bytes = n * n * BytesOf(Storage::kBFloat16);
  GpuRates rates;
  rates.flops = 2 * size * size * size * PerSecond(stream, kMeasuredSeconds, [&] { Multiply(stream, product); });
  rates.copy_bytes_per_second = 2 * static_cast<double>(bytes) * PerSecond(stream, kMeasuredSeconds, [&] {
                                  stream.Copy(product.c.data, product.a.data, bytes);
                                });
  return rates;
}

}  // namespace hadal
