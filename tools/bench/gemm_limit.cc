#include "tools/bench/gemm_limit.h"

#include <cstdint>
#include <memory>
#include <utility>

#include "kernels/cpu/product.h"
#include "pipeline/stage/graph_cache.h"
#include "runtime/check.h"
#include "runtime/clock.h"

namespace hadal {

GemmLimit DeviceGemmLimit(cuda::LaunchDevice& device, std::vector<cuda::MatmulArgs> products) {
  HADAL_CHECK(!products.empty());
  GemmLimit limit{.ways = {"one launch a product"}};
  for (const cuda::MatmulArgs& product : products)
    limit.flops += 2.0 * static_cast<double>(product.count * product.m * product.n * product.k);
  const auto launch_all = [&device, products = std::move(products)] {
    for (const cuda::MatmulArgs& product : products) device.Multiply(product);
  };
  std::shared_ptr<DeviceGraph> graph;  // null: no memory for it
  if (device.FreeBytes() >= GraphCache::kKeepFreeBytes) {
    device.BeginCapture();
    launch_all();
    absl::StatusOr<std::unique_ptr<DeviceGraph>> recorded = device.EndCapture();
    if (recorded.ok()) {
      graph = *std::move(recorded);
      limit.ways.emplace_back("one graph");
    }
  }
  limit.run = [&device, launch_all, graph](size_t way) {
    HADAL_CHECK_LT(way, graph != nullptr ? 2u : 1u);
    device.Synchronize();
    const Stopwatch watch;
    if (way == 0) {
      launch_all();
    } else {
      device.Launch(*graph);
    }
    device.Synchronize();
    return watch.Seconds();
  };
  return limit;
}

GemmLimit HostGemmLimit(double flops, const Stream& stream) {
  return {.ways = {"multiply-adds in registers"}, .flops = flops, .run = [flops, stream](size_t way) {
            HADAL_CHECK_EQ(way, 0u);
            constexpr int64_t kRounds = 4'000'000;
            const Stopwatch watch;
            int64_t operations = 0;
            stream.Run([&](int thread) {
              const int64_t of_thread = cpu::MultiplyInRegisters(kRounds);
              if (thread == 0) operations = of_thread;
            });
            return flops / static_cast<double>(operations * stream.threads()) * watch.Seconds();
          }};
}

}  // namespace hadal
