#include "tools/bench/gemm_limit.h"

#include <cstdint>
#include <utility>

#include "kernels/cpu/product.h"
#include "pipeline/stage/graph_cache.h"
#include "runtime/check.h"
#include "runtime/clock.h"

namespace hadal {

DeviceGemmLimit::DeviceGemmLimit(cuda::LaunchDevice& device, std::vector<cuda::MatmulArgs> products)
    : device_(device), products_(std::move(products)) {
  HADAL_CHECK(!products_.empty());
  for (const cuda::MatmulArgs& product : products_)
    flops_ += 2.0 * static_cast<double>(product.count * product.m * product.n * product.k);
  Record();
}

void DeviceGemmLimit::LaunchAll() {
  for (const cuda::MatmulArgs& product : products_) device_.Multiply(product);
}

void DeviceGemmLimit::Record() {
  if (device_.FreeBytes() < GraphCache::kKeepFreeBytes) return;
  device_.BeginCapture();
  LaunchAll();
  absl::StatusOr<std::unique_ptr<DeviceGraph>> graph = device_.EndCapture();
  if (!graph.ok()) return;
  graph_ = *std::move(graph);
  ways_.emplace_back("one graph");
}

double DeviceGemmLimit::Run(size_t way) {
  HADAL_CHECK_LT(way, ways_.size());
  device_.Synchronize();
  const Stopwatch watch;
  if (way == 0) {
    LaunchAll();
  } else {
    device_.Launch(*graph_);
  }
  device_.Synchronize();
  return watch.Seconds();
}

double HostGemmLimit::Run(size_t way) {
  HADAL_CHECK_EQ(way, 0u);
  constexpr int64_t kRounds = 4'000'000;
  const Stopwatch watch;
  int64_t operations = 0;
  stream_.Run([&](int thread) {
    const int64_t of_thread = cpu::MultiplyInRegisters(kRounds);
    if (thread == 0) operations = of_thread;
  });
  return flops_ / static_cast<double>(operations * stream_.threads()) * watch.Seconds();
}

}  // namespace hadal
